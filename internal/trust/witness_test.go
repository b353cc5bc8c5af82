package trust

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

func TestWitnessOfAnAnswer(t *testing.T) {
	t.Parallel()
	writes := []zkwire.Op{
		zkwire.OpCreate, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpMulti,
		zkwire.OpCreateContainer, zkwire.OpCreateTTL,
	}
	reads := []zkwire.Op{
		zkwire.OpExists, zkwire.OpGetData, zkwire.OpGetChildren2, zkwire.OpPing, zkwire.OpAuth, zkwire.OpSetWatches,
		zkwire.OpRemoveWatches, zkwire.OpWhoAmI, zkwire.OpCloseSession, zkwire.OpReconfig,
	}
	for _, c := range []struct {
		code  zkwire.Code
		write Witness // of a write that has a zxid
	}{
		{zkwire.CodeOK, Quorum},
		{zkwire.CodeNoNode, Quorum},
		{zkwire.CodeBadVersion, Quorum},
		{zkwire.CodeNoChildrenForEphemerals, Quorum},
		{zkwire.CodeNodeExists, Quorum},
		{zkwire.CodeNotEmpty, Quorum},

		// A member with eager ACL checks finds these by itself.
		{zkwire.CodeNoAuth, Member},
		{zkwire.CodeInvalidACL, Member},

		// These come before there is a transaction, or without one.
		{zkwire.CodeSessionMoved, Member},
		{zkwire.CodeSessionExpired, Member},
		{zkwire.CodeThrottled, Member},
		{zkwire.CodeReadOnly, Member},
		{zkwire.CodeAuthRequired, Member},
		{zkwire.CodeAuthFailed, Member},
		{zkwire.CodeQuotaExceeded, Member},
		{zkwire.CodeUnimplemented, Member},
		{zkwire.CodeBadArguments, Member},
		{zkwire.CodeMarshallingError, Member},
		{zkwire.CodeConnectionLoss, Member},
		{zkwire.CodeOperationTimeout, Member},
		{zkwire.CodeReconfigDisabled, Member},
		{zkwire.CodeNoWatcher, Member},

		// What a Multi that was not executed is passed with.
		{zkwire.CodeRuntimeInconsistency, Member},
	} {
		for _, op := range writes {
			require.Equal(t, c.write, WitnessOf(op, c.code, 1), "%v, %v", op, c.code)
			require.Equal(t, Member, WitnessOf(op, c.code, 0), "%v, %v: no transaction", op, c.code)
			require.Equal(t, Member, WitnessOf(op, c.code, -1), "%v, %v: no transaction", op, c.code)
		}
		for _, op := range reads {
			require.Equal(t, Member, WitnessOf(op, c.code, 1), "%v, %v", op, c.code)
		}
		sync := Member
		if c.code == zkwire.CodeOK {
			sync = Leader
		}
		require.Equal(t, sync, WitnessOf(zkwire.OpSync, c.code, 1), c.code)
		require.Equal(t, sync, WitnessOf(zkwire.OpSync, c.code, 0), c.code)
	}
}
