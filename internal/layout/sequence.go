package layout

import (
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"
)

// SequenceFormat is how ZooKeeper appends a number to the name of a sequential node (even a
// negative number).
const SequenceFormat = "%010d"

// MaxSequence is the last sequence number that a recipe works with. At the counter's end, 2^31-1,
// servers give out the same number again and again. So there's room for 2^20 creates that are under
// way when the first contender notices.
const MaxSequence = 1<<31 - 1<<20

// ParseSequence reads a sequence number exactly as ZooKeeper writes it.
func ParseSequence(number string) (int32, bool) {
	n, err := strconv.ParseInt(number, 10, 32)
	plain := len(number) == 10 && number[0] >= '0' // needs no comparison
	return int32(n), err == nil && (plain || number == fmt.Sprintf(SequenceFormat, n))
}

// NextSequence returns the number of the next sequential child of the node with this Stat. The
// server's counter counts 2 for each child that was created, and -1 for each child that exists. It
// is negative in the second half of the numbers.
func NextSequence(parent *zk.Stat) int32 {
	return int32(uint32(parent.Cversion+parent.NumChildren) >> 1)
}
