package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
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

// printable returns text that a terminal shows as it is: see [plain.Text].
func printable(text string) string { return plain.Text(text) }

// harmless returns a line with each unprintable character escaped as in Go.
func harmless(line string) string { return plain.Line(line) }

// encodeJSON returns v in one line of JSON that a terminal shows as it is.
func encodeJSON(v any) ([]byte, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}

	// What is not ASCII stands in strings.
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

// content is data in JSON: as text, or in base64 if they are none. It is for embedding.
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

// sessionID is how session IDs are written: see [plain.Session].
func sessionID(id int64) string { return plain.Session(id) }
