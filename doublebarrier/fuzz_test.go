package doublebarrier

import (
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/require"
)

// FuzzParseMember checks that the parts of a name that is accepted stand in the name.
func FuzzParseMember(f *testing.F) {
	for _, name := range []string{
		"", "README", "000000000000100a-0000beef-1-of-3-member-0000000007", "000000000000100a-0000beef-1-of--member-0000000007",
		"000000000000100a-0000beef-1-of-99999999999999999999-member-0000000007",
		"000000000000100a-0000beef-1-of-3-member--000000007", "000000000000100A-0000beef-1-of-3-member-0000000007",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		m, ok := parseMember(name)
		if !ok {
			return
		}
		require.Equal(t, name, m.name)
		require.GreaterOrEqual(t, m.n, 0)
		rest, begins := strings.CutPrefix(name, m.owner+"-")
		require.True(t, begins, "%q has the owner %q", name, m.owner)
		require.NotContains(t, rest[:1], "-")
	})
}

// FuzzParseRecord checks that a record with a gate says the same when it is written and read again.
func FuzzParseRecord(f *testing.F) {
	const member = "000000000000100a-0000beef-1-of-1-member-0000000007"
	for _, data := range []string{
		"", recordMark, recordMark + "3 from=0 rounds=1\n", "others " + recordMark + "1 from=0 rounds=1\nid\n" + member,
		recordMark + "1 from=0 rounds=1\nid\n" + member + "\n", recordMark + "-1 from=-1 rounds=-1\n\n" + member,
		recordMark + "1 from=1 rounds=1 and more\nid\n" + member,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b, stat := new(Barrier), new(zk.Stat)
		r := b.parseRecord(data, stat)
		require.True(t, strings.HasPrefix(string(data), r.preamble))
		if r.gate != nil {
			require.Equal(t, r, b.parseRecord(r.data(), stat))
		}
	})
}
