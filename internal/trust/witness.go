package trust

import "github.com/zkrecipes/zkrecipes/internal/zkwire"

// A Witness says which members took part in an answer.
type Witness int

// The witnesses, each with those before it.
const (
	Member Witness = iota // the server that the session is connected to
	Leader                // and the member that this server takes for the leader
	Quorum                // and a quorum
)

// WitnessOf returns which members took part in an answer to op, with this error code and this zxid
// in its header.
//
// A write that the leader has prepared is voted on, also if it fails: it then is a transaction that
// changes nothing, with a zxid. The codes below are those that the leader finds when it prepares
// one. Two more are left out, because a member with enableEagerACLCheck finds them by itself, a
// deposed leader included: -102 (no permission) and -114 (bad ACL). Such an answer has no zxid.
// Everything else may be said before there is a transaction: that the session has moved or expired,
// that the server is throttled, that a credential or room below a quota is missing.
//
// A Multi's header says OK whatever has become of it. So its caller passes CodeRuntimeInconsistency
// if it was not executed: the reason may be that the leader has expired the session.
func WitnessOf(op zkwire.Op, code zkwire.Code, zxid int64) Witness {
	switch op {
	case zkwire.OpCreate, zkwire.OpDelete, zkwire.OpSetData, zkwire.OpSetACL, zkwire.OpMulti,
		zkwire.OpCreateContainer, zkwire.OpCreateTTL:
		switch code {
		case zkwire.CodeOK, zkwire.CodeNoNode, zkwire.CodeBadVersion,
			zkwire.CodeNoChildrenForEphemerals, zkwire.CodeNodeExists, zkwire.CodeNotEmpty:
			if zxid > 0 {
				return Quorum
			}
		}
	case zkwire.OpSync:
		if code == zkwire.CodeOK {
			return Leader
		}
	}
	return Member
}
