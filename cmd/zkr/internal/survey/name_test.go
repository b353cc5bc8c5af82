package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNamesSayWhoseTheyAre(t *testing.T) {
	t.Parallel()
	all := append(append(append([]string{}, lockKinds...), readKinds...), append(permitKinds, onceKinds...)...)
	for node, want := range map[string]name{
		"00000000000000ab-0000000c-lock-0000000001": {
			kind: "lock", sequence: 1, library: Ours, owner: "00000000000000ab-0000000c", session: 0xab,
		},
		"00000000000000ab-0000000c-permit-0000000001": {
			kind: "permit", sequence: 1, library: Ours, owner: "00000000000000ab-0000000c", session: 0xab,
		},
		"00000000000000ab-0000000c-a-run--run-0000000001": {
			kind: "run", sequence: 1, library: Ours, owner: "00000000000000ab-0000000c", session: 0xab, key: "a-run-",
		},
		"_c_0123456789abcdef0123456789abcdef-lock-0000000002": {
			kind: "lock", sequence: 2, library: ZKLock, owner: "0123456789abcdef0123456789abcdef",
		},
		"_c_01234567-89ab-cdef-0123-456789abcdef-__READ__0000000003": {
			kind: "READ", sequence: 3, library: Curator, owner: "01234567-89ab-cdef-0123-456789abcdef",
		},
		"0123456789abcdef0123456789abcdef__rlock__0000000004": {
			kind: "rlock", sequence: 4, library: Kazoo, owner: "0123456789abcdef0123456789abcdef",
		},
		"lock--2147483647": {kind: "lock", sequence: -2147483647, library: Unknown},
	} {
		got, ok := parseName(node, all...)
		require.True(t, ok, node)
		want.node = node
		require.Equal(t, want, got)
	}
	for _, node := range []string{"", "lock", "lock-1", "README", "lock-0000000001x", "process"} {
		_, ok := parseName(node, all...)
		require.False(t, ok, node)
	}
}

func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"00000000000000ab-0000000c-lock-0000000001", "00000000000000ab-0000000c-run-0000000001",
		"00000000000000ab-0000000c-permit-0000000001", "00000000000000ab-0000000c-1-of-3-member-0000000001",
		"_c_0123456789abcdef0123456789abcdef-lock-0000000002", "lock--0000000001", "__lock__0000000001",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, node string) {
		for _, kinds := range [][]string{lockKinds, readKinds, writeKinds, permitKinds, onceKinds, latchKinds, leaseKinds} {
			if n, ok := parseName(node, kinds...); ok {
				require.Equal(t, node, n.node)
				require.NotEmpty(t, n.kind)
				require.GreaterOrEqual(t, n.permits, 0)
			}
		}
		if n, ok := parseMember(node); ok {
			require.GreaterOrEqual(t, n.permits, 0)
		}
		OwnerOf([]byte(node))
	})
}
