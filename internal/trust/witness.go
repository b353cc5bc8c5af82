package trust

import "github.com/zkrecipes/zkrecipes/internal/zkwire"

// A Witness says which members took part in an answer.
type Witness int

// Each witness includes the witnesses before it.
const (
	Member Witness = iota // the server that the session is connected to
	Leader                // and the member that this server believes to be the leader
	Quorum                // and a quorum
)

// WitnessOf returns which members took part in an answer to op, by the error code and the zxid in
// its header.
//
// If the leader has prepared a write, a quorum votes on it. That is so even if the write fails,
// because it's then a transaction (with a zxid) that changes nothing. The codes below are errors
// that the leader finds when it prepares a write. Two more such errors are left out: -102 (no
// permission) and -114 (bad ACL). A member with enableEagerACLCheck finds them by itself, and so
// does a deposed leader. Their answers then have no zxid. All other errors can come before there is
// a transaction (the session has moved or expired, the server is throttled, a credential or room
// below a quota is missing).
//
// A Multi's header always says OK. So if the Multi wasn't executed, the caller must pass
// CodeRuntimeInconsistency: the leader may have refused it because it has expired the session.
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
