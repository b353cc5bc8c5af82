package queue

import (
	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// The records of a queue are nodes below its path that are no entries:
//
//	<path>/zkrecipes                        the register: its version counts what was released
//	<path>/zkrecipes/take-<owner>           the receipt of a consumer, one for each session
//	<path>/zkrecipes/hold-<owner>           likewise, of one that reserves
//	<path>/zkrecipes/tickets-<base>         where consumers that race draw tickets
//	<path>/zkrecipes/receipts/<verb>-<owner>  the other receipts; [bound] uses their directory's version
//	<path>/zkrecipes/waiting/               the line of consumers that wait
//	<path>/zkrecipes/offering/              the lines of producers near the maximum length
//	<path>/zkrecipes/keys/                  the keys of entries that were offered with one
//
// A transaction that makes an entry available again, or adds one that is not called qn-<sequence>,
// sets the register's data to the entry's name, or to nothing if that is new. A claim that is not
// given back goes with its session, and so with a receipt of a consumer that reserves. So the
// entries that were found reserved are still reserved, or gone, while the register has the same
// version and the same children.
const (
	recordsNode  = "/zkrecipes"
	receiptsNode = recordsNode + "/receipts"
	waitingNode  = recordsNode + "/waiting"
	offeringNode = recordsNode + "/offering"
	keysNode     = recordsNode + "/keys"

	takerPrefix  = "take-"
	holderPrefix = "hold-"
)

// ring is the operation that tells waiting consumers of an entry that was released, or of a new one
// if released is empty.
func ring(s *protocol.Session, queue, released string) any {
	return &zk.SetDataRequest{Path: s.Path(queue + recordsNode), Data: []byte(released), Version: -1}
}
