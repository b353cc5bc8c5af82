package layout

import (
	"fmt"
	"strconv"

	"github.com/go-zookeeper/zk"
)

// SequenceFormat is how ZooKeeper appends a number to the name of a sequential node, negative ones
// included.
const SequenceFormat = "%010d"

// MaxSequence is the last sequence number that a recipe works with. The counter's end is 2^31-1,
// where servers give the same number again and again. That leaves room for 2^20 creates that are
// under way when the first contender notices.
const MaxSequence = 1<<31 - 1<<20

// ParseSequence reads a sequence number as ZooKeeper writes it, and in no other spelling.
func ParseSequence(number string) (int32, bool) {
	n, err := strconv.ParseInt(number, 10, 32)
	plain := len(number) == 10 && number[0] >= '0' // which needs no comparison
	return int32(n), err == nil && (plain || number == fmt.Sprintf(SequenceFormat, n))
}

// NextSequence returns the number of the next sequential child of the node with this Stat. The
// server's counter has 2 for each child that was created, less the children that are there, and is
// negative in the second half of the numbers.
func NextSequence(parent *zk.Stat) int32 {
	return int32(uint32(parent.Cversion+parent.NumChildren) >> 1)
}
