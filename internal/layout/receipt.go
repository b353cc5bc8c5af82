package layout

import (
	"fmt"
	"strings"
)

// Receipt is the name of an owner's receipt, which stands beside the holder's node and says which of
// the holder's transactions were executed.
//
// It is no contender of any library: our own, Curator's and kazoo's locks skip it or sort it behind
// all contenders. Those that take whatever ends in a number for a contender (zk.Lock and ZooKeeper's
// WriteLock) find the number of the holder's node, so it delays nobody whom that does not delay.
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

// IsReceipt reports whether the name of a node is that of a receipt.
func IsReceipt(node string) bool { return strings.HasPrefix(node, "receipt-") }
