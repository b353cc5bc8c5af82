package queue

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

const (
	prefix = "qn-" // of an entry's name, as the Java DistributedQueue writes it

	// lastSequence is the last number that a queue takes. The counter ends at 2^31-1, where servers
	// give the same number again and again. 2^20 offers may be under way before all producers have
	// noticed.
	lastSequence = 1<<31 - 1<<20
)

// parse returns the number of an entry. It reports whether name is that of an entry at all.
func parse(name string) (sequence int32, ok bool) {
	digits, ok := strings.CutPrefix(name, prefix)
	if !ok || len(digits) < 10 || len(digits) > 11 || digits[0] == '+' {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || (n < 0 || len(digits) != 10) && digits != fmt.Sprintf("%010d", n) {
		return 0, false
	}
	return int32(n), true
}

// compare orders entries as serial numbers. Negative numbers, which follow the counter's end, come
// last.
func compare(a, b *entry) int { return cmp.Compare(a.sequence-b.sequence, 0) }

// parseAll returns the entries among the children of a queue, in order.
func parseAll(children []string) []*entry {
	entries := make([]*entry, 0, len(children))
	for _, name := range children {
		if n, ok := parse(name); ok {
			entries = append(entries, &entry{name: name, sequence: n})
		}
	}
	slices.SortFunc(entries, compare)
	return entries
}
