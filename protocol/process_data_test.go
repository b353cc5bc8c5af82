package protocol_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestProcessIsALineOfJSON(t *testing.T) {
	p := protocol.Process{Host: "web-3", PID: 4711, Program: "a && b"}
	require.Equal(t, `{"zkrecipes":1,"host":"web-3","pid":4711,"program":"a && b"}`, string(p.Data()))
	require.Equal(t, "a && b[4711] on web-3", p.String())

	read, ok := protocol.ParseProcess(p.Data())
	require.True(t, ok)
	require.Equal(t, p, read)
	_, ok = protocol.ParseProcess([]byte(`{"zkrecipes":2,"host":"web-3","zone":"a"}`))
	require.True(t, ok, "a later version")
	for _, other := range []string{"", "192.0.2.1", "null", "[]", `{"host":"web-3"}`, `{"zkrecipes":1,"pid":"x"}`, "\xff"} {
		_, ok := protocol.ParseProcess([]byte(other))
		require.False(t, ok, other)
	}
}

func TestDataOfAProcessIsPrintable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.RuneFrom([]rune("\x1b\x00\x7f\u009b\u202e\u2028\n\"\\a"))),
			rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		p := protocol.Process{Host: text.Draw(t, "host"), PID: rapid.Int().Draw(t, "pid"), Program: text.Draw(t, "program")}
		for _, shown := range []string{string(p.Data()), p.String()} {
			if !utf8.ValidString(shown) || strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Fatalf("%q", shown)
			}
		}
		if _, ok := protocol.ParseProcess(p.Data()); !ok {
			t.Fatalf("%q is not read", p.Data())
		}
	})
}

func FuzzParseProcess(f *testing.F) {
	f.Add([]byte(`{"zkrecipes":1,"host":"web-3","pid":4711,"program":"reports"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, ok := protocol.ParseProcess(data); ok {
			again, ok := protocol.ParseProcess(p.Data())
			require.True(t, ok)
			require.Equal(t, p.PID, again.PID)
		}
	})
}

func TestOwnerDataThatIsTooLongIsRefused(t *testing.T) {
	c := recipestest.Start(t).Client(t, protocol.WithOwnerData(make([]byte, 1024)))
	require.Len(t, session(t, c).NodeData(nil), 1024)

	_, err := protocol.Connect(t.Context(), "127.0.0.1:1", protocol.WithOwnerData(make([]byte, 1025)))
	require.ErrorIs(t, err, protocol.ErrTooLarge)
}
