package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
)

func TestTextThatATerminalWouldNotShowIsQuoted(t *testing.T) {
	for text, want := range map[string]string{
		"plain":         "plain",
		"grüße 世界":      "grüße 世界",
		"":              `""`,
		`"quoted"`:      `"\"quoted\""`,
		"\x1b[31mred":   `"\x1b[31mred"`,
		"two\nlines":    `"two\nlines"`,
		"\x9b2J":        `"\x9b2J"`,
		"c1 \u009b":     `"c1 \u009b"`,
		"bidi \u202eab": `"bidi \u202eab"`,
		"\x00\xff":      `"\x00\xff"`,
	} {
		assert.Equal(t, want, printable(text))
	}
	assert.Equal(t, `node \x1b[2J of \u202e ü \xff`, harmless("node \x1b[2J of \u202e ü \xff"))
}

func FuzzTextIsHarmless(f *testing.F) {
	for _, seed := range []string{"", "a\x1b]0;title\x07", "\u009b\u202e", "\xff\xfe", "\U000e0001", `\"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		require.Negative(t, strings.IndexFunc(printable(text), plain.Unprintable))
		require.Negative(t, strings.IndexFunc(harmless(text), plain.Unprintable))

		line, err := encodeJSON(struct {
			content
		}{contentOf([]byte(text))})
		require.NoError(t, err)
		require.Negative(t, strings.IndexFunc(strings.TrimSuffix(string(line), "\n"), plain.Unprintable))
		var back content
		require.NoError(t, json.Unmarshal(line, &back))
		if back.Data != nil {
			require.Equal(t, text, *back.Data)
		} else {
			require.Equal(t, text, string(back.Base64))
		}
	})
}
