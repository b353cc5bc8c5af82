// Package plain makes foreign text safe to show. A terminal could obey such text, and on a page it
// could look like something else.
package plain

import (
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Text returns text as it is if a terminal can show all its characters. Otherwise it returns the
// text quoted as in Go. Empty text, and text that begins with a quotation mark, is quoted too.
func Text(text string) string {
	if text != "" && text[0] != '"' && utf8.ValidString(text) && strings.IndexFunc(text, Unprintable) < 0 {
		return text
	}
	return strconv.Quote(text)
}

// Unprintable reports whether a terminal can do anything but show a character.
func Unprintable(r rune) bool { return !unicode.IsPrint(r) }

// Line returns a line with unprintable characters escaped as in Go.
func Line(line string) string {
	quoted := strconv.Quote(line)
	return unquote.Replace(quoted[1 : len(quoted)-1])
}

// unquote takes back what [strconv.Quote] does to printable characters.
var unquote = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// Session returns a session's ID as the servers write it. For 0 it is empty.
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
