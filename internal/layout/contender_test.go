package layout

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	curators = "_c_2c9a3b2e-0ee3-4cdb-8d5e-5e0e3d8a1c70-lock-0000000001"
	gozks    = "_c_0123456789abcdef0123456789abcdef-lock-0000000001"
	kazoos   = "0123456789abcdef0123456789abcdef__lock__0000000001"
)

// nodeName returns the name of a node to which the server has given this sequence number.
func nodeName(o Owner, kind string, sequence int32) string {
	return fmt.Sprintf("%s-%s%010d", o, kind, sequence)
}

func TestParseContender(t *testing.T) {
	t.Parallel()
	kinds := []string{"lock-", "__lock__"}
	us := Owner{Session: 0x100a, Nonce: 0xbeef}
	for node, want := range map[string]Contender{
		"000000000000100a-0000beef-lock-0000000007": {Kind: "lock-", Sequence: 7, Owner: us},
		"000000000000100a-0000beef-lock-2147483647": {Kind: "lock-", Sequence: math.MaxInt32, Owner: us},
		"ffffffffffffffff-ffffffff-lock-0000000000": {Kind: "lock-", Owner: Owner{Session: -1, Nonce: math.MaxUint32}},
		curators:             {Kind: "lock-", Sequence: 1},
		gozks:                {Kind: "lock-", Sequence: 1},
		kazoos:               {Kind: "__lock__", Sequence: 1},
		"lock-0000000001":    {Kind: "lock-", Sequence: 1},
		"padlock-0000000001": {Kind: "lock-", Sequence: 1},
		"000000000000100A-0000beef-lock-0000000007":  {Kind: "lock-", Sequence: 7}, // we write lower case
		"000000000000100a-0000beef-xlock-0000000007": {Kind: "lock-", Sequence: 7},
		"00000000000100a-0000beef-lock-0000000007":   {Kind: "lock-", Sequence: 7},
	} {
		want.Node = node
		got, ok := ParseContender(node, kinds...)
		require.True(t, ok, node)
		require.Equal(t, want, got)
	}
	for _, node := range []string{
		"", "README", "lock-", "lock-abc", "lock-000000001", "lock-00000000001", "lock-0000000001x", "lock-٠٠٠٠٠٠٠٠٠٠",
		"lock-2147483648", "lock-9999999999", "0000000001", "read-0000000001", "lock_0000000001", "_c_short", "lock-+000000001",
	} {
		_, ok := ParseContender(node, kinds...)
		require.False(t, ok, node)
	}
}

func TestTheLongestKindCounts(t *testing.T) {
	t.Parallel()
	for _, kinds := range [][]string{{"lock-", "unlock-"}, {"unlock-", "lock-"}} {
		n, ok := ParseContender("unlock-0000000001", kinds...)
		require.True(t, ok)
		require.Equal(t, "unlock-", n.Kind)
	}
}

// The server appends String.format("%010d"). So a negative number has ten places with its sign, or
// eleven.
func TestParseContenderReadsNumbersAfterTheCountersEnd(t *testing.T) {
	t.Parallel()
	o := Owner{Session: 1, Nonce: 2}
	for _, sequence := range []int32{math.MinInt32, math.MinInt32 + 1, -1_000_000_000} {
		n, ok := ParseContender(nodeName(o, "lock-", sequence), "lock-")
		require.True(t, ok, "%010d", sequence)
		require.Equal(t, sequence, n.Sequence)
		require.Equal(t, o, n.Owner)
	}
}

func drawOwner(t *rapid.T) Owner {
	session := rapid.Int64().Filter(func(id int64) bool { return id != 0 })
	return Owner{Session: session.Draw(t, "session"), Nonce: rapid.Uint32().Draw(t, "nonce")}
}

func TestForeignNameIsNotTakenForOurs(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawOwner(t), drawOwner(t)
		name := nodeName(a, "lock-", 1)
		n, ok := ParseContender(name, "lock-")
		require.True(t, ok)
		require.Equal(t, a == b, n.Owner == b)
		prefixed, ok := ParseContender(rapid.StringN(1, 9, -1).Draw(t, "prefix")+name, "lock-")
		require.True(t, ok)
		require.NotEqual(t, a, prefixed.Owner, "a name within a name is foreign")
		between := rapid.StringN(1, 9, -1).Draw(t, "between")
		foreign, ok := ParseContender(a.String()+"-"+between+"lock-0000000001", "lock-")
		require.True(t, ok)
		require.Zero(t, foreign.Owner, "a name of ours has nothing between the owner and the kind")
	})
}

// A kind can have any characters, even the characters around it.
func TestAnyKindIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.StringMatching(`[0-9a-f-]{1,30}`).Draw(t, "kind")
		n := Contender{Kind: kind, Sequence: rapid.Int32Min(0).Draw(t, "sequence"), Owner: drawOwner(t)}
		n.Node = nodeName(n.Owner, n.Kind, n.Sequence)

		got, ok := ParseContender(n.Node, kind)

		require.True(t, ok)
		require.Equal(t, n, got)
	})
}

func FuzzParseContender(f *testing.F) {
	for _, node := range []string{
		curators, gozks, kazoos, "000000000000100a-0000beef-lock-0000000007", "lock--2147483648", "lock--000000001",
		"README", "lock-abc", "lock-00000000001", "lock-", "", "_c_short", "\xff\x00-lock-0000000001",
	} {
		f.Add(node, "__lock__")
	}
	f.Add("0123456789abface-0123456789", "face-")
	f.Fuzz(func(t *testing.T, node, kind string) {
		n, ok := ParseContender(node, "lock-", kind)
		if !ok {
			require.Zero(t, n)
			return
		}
		require.Equal(t, node, n.Node)
		require.True(t, strings.HasSuffix(node, n.Kind+fmt.Sprintf("%010d", n.Sequence)), "%q is %+v", node, n)
		if n.Owner != (Owner{}) {
			require.Equal(t, nodeName(n.Owner, n.Kind, n.Sequence), node)
		}
	})
}

func TestReceiptHasTheNumberOfItsHolder(t *testing.T) {
	require.Equal(t, "receipt-o-0000000007", Receipt("o", "x-lock-0000000007"))
	require.Equal(t, "receipt-o-0000000000", Receipt("o", "name"))
}
