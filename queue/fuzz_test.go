package queue

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzConsumers checks what is read of the names of consumers and of their tickets.
func FuzzConsumers(f *testing.F) {
	f.Add("000000000000100a-0000beef-wait-0000000007\n000000000000100a-0000beee-wait-0000000006\nREADME")
	f.Add("tickets-7\ntickets--2147483648\ntickets-2147483648\ntickets-\ntickets-+7")
	f.Add("-wait--000000001\n-wait-0000000000\n-wait-")
	f.Fuzz(func(t *testing.T, list string) {
		names := strings.Split(list, "\n")
		if best, _, found := bestTickets(names); found {
			require.Contains(t, names, best)
		}

		waiting := inLine(slices.Clone(names))
		require.Subset(t, names, waiting)
		backwards := slices.Clone(names)
		slices.Reverse(backwards)
		require.ElementsMatch(t, waiting, inLine(backwards))
	})
}
