// Package plain makes text of any origin safe to be shown: on a terminal, which could obey it, and
// on a page, where it could look like something else.
package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns text as it is if a terminal shows each of its characters, and quoted as in Go
// otherwise. Text that begins with a quotation mark, or is empty, is quoted, too.
func Text(text string) string {
	if text != "" && text[0] != '"' && utf8.ValidString(text) && strings.IndexFunc(text, Unprintable) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// Unprintable reports whether a terminal may do something else with a character than show it.
func Unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Line returns a line with each unprintable character escaped as in Go.
func Line(line string) string {
	var b strings.Builder
	for i, r := range line {
		_, size := utf8.DecodeRuneInString(line[i:])
		if r != utf8.RuneError && !Unprintable(r) || r == utf8.RuneError && size > 1 {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.Quote(line[i : i+size])
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// Session returns a session's ID as the servers write it. 0 is empty.
func Session(id int64) string {
	if id == 0 {
		return ""
	}
	return "0x" + strconv.FormatUint(uint64(id), 16)
}

// Cut returns the first n bytes of a text, with an ellipsis if there are more.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}
