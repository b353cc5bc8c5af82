package layout

import (
	"fmt"
	"strings"
)

// Receipt returns the name of an owner's receipt. The receipt is beside the holder's node and says
// which of the holder's transactions were executed.
//
// No library takes it for a contender: our own locks, Curator's and kazoo's skip it, or sort it
// behind all contenders. zk.Lock and ZooKeeper's WriteLock take every name that ends in a number
// for a contender. They find the number of the holder's node, so the receipt delays no waiter that
// the holder's node doesn't delay.
func Receipt(owner, node string) string {
	const digits = 10
	number := "0000000000"
	if n := len(node) - digits; n > 0 {
		if _, ok := ParseSequence(node[n:]); ok {
			number = node[n:]
		}
	}

	return fmt.Sprintf("receipt-%s-%s", owner, number)
}

// IsReceipt reports whether a node's name is the name of a receipt.
func IsReceipt(node string) bool { return strings.HasPrefix(node, "receipt-") }
