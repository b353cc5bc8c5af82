package queue

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// What is written into a name is read from it.
func TestNamesAreReadAsWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		want := notes{
			due:      rapid.Int64Min(0).Draw(t, "due"),
			since:    rapid.Int64Min(0).Draw(t, "since"),
			attempts: rapid.IntRange(0, math.MaxInt32).Draw(t, "attempts"),
			origin:   rapid.OneOf(rapid.String(), rapid.StringMatching(`[-%/0-9A-F\x00]*`)).Draw(t, "origin"),
		}
		priority, sequence := rapid.IntRange(0, 999).Draw(t, "priority"), rapid.Int32().Draw(t, "sequence")
		node := want.prefix(priority) + fmt.Sprintf("%010d", sequence)
		require.NotContains(t, node, "/")
		require.NotContains(t, node, "\x00")
		got, ok := parseName(node, rapid.Bool().Draw(t, "priorities"))
		require.True(t, ok, node)
		require.Equal(t, name{node, sequence, priority, want}, got)

		entry := fmt.Sprintf("entry-%03d-%010d", priority, sequence)
		got, ok = parseName(entry, true)
		require.True(t, ok)
		require.Equal(t, name{node: entry, sequence: sequence, priority: priority}, got)
		_, ok = parseName(entry, false)
		require.False(t, ok)

		plain := fmt.Sprintf("qn-%010d", sequence)
		got, ok = parseName(plain, rapid.Bool().Draw(t, "priorities"))
		require.True(t, ok)
		require.Equal(t, name{node: plain, sequence: sequence, priority: defaultPriority}, got)
	})
}

// Servers refuse what is replaced here, and nothing else.
func TestReasonsAreLegible(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a b c", legible("a\nb\tc"))
	require.Equal(t, "\uf900 \u00e9\ud55c ", legible("\uf900\ue000\u00e9\ud55c\U0001f600"))
	require.Equal(t, strings.Repeat("\u00e9", reasonLength), legible(strings.Repeat("\u00e9", reasonLength+1)))
}

func FuzzParseName(f *testing.F) {
	for _, node := range []string{
		"", "-", "--", "qn", "qn-", "-0000000001", "--000000001", "qn--0000000001", "qn-0000000001", "qn-1", "qn-+000000001",
		"qn-00000000012", "qn-x-0000000001", "item-0000000001", "item-1-2-3-4--0000000001", "item--1-2-3-4-5-0000000001",
		"item-1-2-3-4-a-b-0000000001", "item-1-2-3-4-%2D-0000000001", "item-+1-2-3-4--0000000001", "item-1-2-3-4-5--2147483648",
		"entry-1-0000000001", "entry-+10-0000000001", "entry-100-0000000001", "entry--10-0000000001", "zkrecipes",
	} {
		f.Add(node)
	}
	f.Fuzz(func(t *testing.T, node string) {
		for _, priorities := range []bool{false, true} {
			n, ok := parseName(node, priorities)
			if !ok {
				continue
			}
			require.Equal(t, node, n.node)
			require.GreaterOrEqual(t, n.priority, 0)
			require.GreaterOrEqual(t, n.due, int64(0))
			require.GreaterOrEqual(t, n.attempts, 0)
			require.True(t, strings.HasSuffix(node, fmt.Sprint(abs(n.sequence))), "%q: %d", node, n.sequence)
		}
	})
}

func abs(n int32) int64 { return max(int64(n), -int64(n)) }

func TestNamesAreParsed(t *testing.T) {
	t.Parallel()
	for node, want := range map[string]name{
		"qn-0000000007":  {sequence: 7, priority: 100},
		"qn--000000007":  {sequence: -7, priority: 100},
		"qn--2147483648": {sequence: -1 << 31, priority: 100},
		"item-5-4-3-2--0000000007": {
			sequence: 7, priority: 2, notes: notes{due: 5, since: 4, attempts: 3},
		},
		"item-5-4-3-2--1234567890": {
			sequence: 1234567890, priority: 2, notes: notes{due: 5, since: 4, attempts: 3},
		},
		"item-5-4-3-2---000000007": {
			sequence: -7, priority: 2, notes: notes{due: 5, since: 4, attempts: 3},
		},
		"item-5-4-3-2-%2Fq%2Da b--000000007": {
			sequence: -7, priority: 2, notes: notes{due: 5, since: 4, attempts: 3, origin: "/q-a b"},
		},
		"item-9223372036854775807-1786000000000-2147483647-2--0000000007": {
			sequence: 7, priority: 2, notes: notes{due: 1<<63 - 1, since: 1786000000000, attempts: 1<<31 - 1},
		},
		"entry-050-0000000007": {sequence: 7, priority: 50},
		"entry-050--000000007": {sequence: -7, priority: 50},
	} {
		want.node = node
		n, ok := parseName(node, true)
		require.True(t, ok, node)
		require.Equal(t, want, n)
	}

	for _, node := range []string{
		"", "-", "--", "qn", "qn-", "qn-7", "qn---000000007", "qn--0000000007", "-0000000007", "--000000007", "zkrecipes",
		"entry-50-0000000007", "entry-+50-0000000007", "entry-100--0000000007", "entry--0000000007",
		"item-5-4-3-0000000007", "item-5-4-3--2--0000000007", "item-5-4-3-2-x-y-0000000007", "item-5--3-2-x-0000000007",
		"item-9223372036854775808-4-3-2-x-0000000007", "item-5-9223372036854775808-3-2-x-0000000007",
		"item-5-4-3-2147483648-x-0000000007", "item-5-4-2147483648-2-x-0000000007",
	} {
		_, ok := parseName(node, true)
		require.False(t, ok, node)
	}
	_, ok := parseName("entry-050-0000000007", false)
	require.False(t, ok)
}
