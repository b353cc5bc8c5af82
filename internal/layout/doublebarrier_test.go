package layout

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// FuzzParseDouble checks that the parts of a name that is accepted are in the name.
func FuzzParseDouble(f *testing.F) {
	for _, name := range []string{
		"", "README", "000000000000100a-0000beef-1-of-3-member-0000000007", "000000000000100a-0000beef-1-of--member-0000000007",
		"000000000000100a-0000beef-1-of-99999999999999999999-member-0000000007",
		"000000000000100a-0000beef-1-of-3-member--000000007", "000000000000100A-0000beef-1-of-3-member-0000000007",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		m, ok := ParseDouble(name)
		if !ok {
			return
		}
		require.Equal(t, name, m.Node)
		require.GreaterOrEqual(t, m.Size, 0)
		rest, begins := strings.CutPrefix(name, m.Owner+"-")
		require.True(t, begins, "%q has the owner %q", name, m.Owner)
		require.NotContains(t, rest[:1], "-")
	})
}

// FuzzParseDoubleRecord checks that a record with a gate says the same when it is written and read
// again, and that no data of other clients get lost.
func FuzzParseDoubleRecord(f *testing.F) {
	const member = "000000000000100a-0000beef-1-of-1-member-0000000007"
	for _, data := range []string{
		"", doubleMark, doubleMark + "3 from=0 rounds=1\n", "others " + doubleMark + "1 from=0 rounds=1\nid\n" + member,
		doubleMark + "1 from=0 rounds=1\nid\n" + member + "\n", doubleMark + "-1 from=-1 rounds=-1\n\n" + member,
		doubleMark + "1 from=1 rounds=1 and more\nid\n" + member, doubleMark + "1 from=1000 rou",
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := ParseDoubleRecord(data)
		require.True(t, strings.HasPrefix(string(data), r.Preamble))
		require.Equal(t, r, ParseDoubleRecord(r.Data()))
	})
}
