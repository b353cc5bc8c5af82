package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"time"
	"unicode/utf16"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/plain"
)

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// printable returns text in a form that a terminal only shows: see [plain.Text].
func printable(text string) string { return plain.Text(text) }

// harmless returns a line with unprintable characters escaped.
func harmless(line string) string { return plain.Line(line) }

// encodeJSON returns v as one line of JSON that a terminal only shows.
func encodeJSON(v any) ([]byte, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}

	// Characters beyond ASCII only occur in strings, so escapes are safe.
	var b bytes.Buffer
	for _, r := range string(encoded) {
		if !plain.Unprintable(r) {
			b.WriteRune(r)
			continue
		}

		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, `\u%04x`, unit)
		}
	}

	b.WriteByte('\n')
	return b.Bytes(), nil
}

// content is data in JSON: text, or base64 if the data isn't text. It is embedded in other types.
type content struct {
	Data   *string `json:"data,omitempty"`
	Base64 []byte  `json:"data_base64,omitempty"`
}

func contentOf(data []byte) content {
	if text := string(data); utf8.ValidString(text) {
		return content{Data: &text}
	}
	return content{Base64: data}
}

// sessionID returns a session ID as the servers write it: see [plain.Session].
func sessionID(id int64) string { return plain.Session(id) }

// moment returns a time as text, or a hyphen if the servers hide it.
func moment(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// plural returns a number with its noun.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
