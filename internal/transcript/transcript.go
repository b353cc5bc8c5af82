package transcript

import (
	"fmt"
	"slices"
	"strings"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
)

// A transcript records what the sessions of one run were sent. It replaces values that cannot be
// equal on two servers. A zxid becomes its rank among those of the run. The run's root and the
// client's address get names, and session ids are numbered in order. Times are only checked for
// plausibility.
type transcript struct {
	at       *target
	sessions []int64 // in the order in which they started
	lines    [][]any
}

// A zxid is the zxid of a write of this run. Other clients may write to the server too.
type zxid int64

// A latest is the zxid of the server's last write, which any client may have made.
type latest int64

func (t *transcript) add(words ...any) { t.lines = append(t.lines, words) }

// strings returns the transcript's lines.
// Collect all zxids of the run first, because only their order can be compared.
func (t *transcript) strings() []string {
	var known []int64
	for _, line := range t.lines {
		for _, word := range line {
			if z, ok := word.(zxid); ok {
				known = append(known, int64(z))
			}
		}
	}

	slices.Sort(known)
	known = slices.Compact(known)

	lines := make([]string, 0, len(t.lines))
	for _, line := range t.lines {
		words := make([]string, 0, len(line))
		for _, word := range line {
			switch z := word.(type) {
			case zxid:
				rank, _ := slices.BinarySearch(known, int64(z))
				word = fmt.Sprintf("z%d", rank)
			// The last write of another client counts as the last write of this run before it.
			case latest:
				rank, found := slices.BinarySearch(known, int64(z))
				if !found {
					rank--
				}
				word = fmt.Sprintf("z%d", rank)
			}
			words = append(words, fmt.Sprint(word))
		}
		lines = append(lines, strings.TrimRight(strings.Join(words, " "), " "))
	}
	return lines
}

// path returns a path relative to the run's root.
func (t *transcript) path(path string) string {
	if rest, ok := strings.CutPrefix(path, t.at.root); ok && (rest == "" || rest[0] == '/') {
		return fmt.Sprintf("%q", "/"+strings.TrimPrefix(rest, "/"))
	}
	return fmt.Sprintf("unrooted %q", path)
}

func (t *transcript) paths(list []string) string {
	named := make([]string, 0, len(list))
	for _, path := range list {
		named = append(named, t.path(path))
	}
	slices.Sort(named)
	return fmt.Sprint(named)
}

func (t *transcript) owner(id int64) string {
	if id == 0 {
		return "-"
	}
	if i := slices.Index(t.sessions, id); i >= 0 {
		return fmt.Sprintf("session#%d", i)
	}
	return fmt.Sprintf("unknown session %#x", id)
}

func (t *transcript) stat(m *zkwire.Decoder) []any {
	czxid, mzxid, ctime, mtime := m.Int64(), m.Int64(), m.Int64(), m.Int64()
	version, cversion, aversion := m.Int32(), m.Int32(), m.Int32()
	owner, length, children, pzxid := m.Int64(), m.Int32(), m.Int32(), m.Int64()

	// Servers have different clocks, so only relations between times are checked.
	times := "plausible"
	if ctime <= 0 || mtime < ctime || czxid == mzxid && ctime != mtime {
		times = fmt.Sprint(ctime, mtime)
	}

	return []any{
		"{c", zxid(czxid), "m", zxid(mzxid), "p", zxid(pzxid), "times", times,
		"versions", version, cversion, aversion, "owner", t.owner(owner),
		"length", length, "children", children, "}",
	}
}

func (t *transcript) event(m *zkwire.Decoder) []any {
	kind, state, path := m.Int32(), m.Int32(), m.String()
	name := fmt.Sprintf("type %d", kind)
	if names := []string{1: "created", "deleted", "changed", "children"}; kind > 0 && int(kind) < len(names) {
		name = names[kind]
	}
	return []any{"event", name, "state", state, t.path(path), t.rest(m)}
}

// answer decodes the body of an answer without an error.
func (t *transcript) answer(r request, m *zkwire.Decoder) []any {
	var words []any

	switch r.op {
	case zkwire.OpCreate:
		words = []any{t.path(m.String())}
	case zkwire.OpCreate2, zkwire.OpCreateContainer, zkwire.OpCreateTTL:
		words = append([]any{t.path(m.String())}, t.stat(m)...)
	case zkwire.OpExists, zkwire.OpSetData, zkwire.OpSetACL:
		words = t.stat(m)
	case zkwire.OpGetData:
		words = []any{quote(m.Buffer())}
		words = append(words, t.stat(m)...)
	case zkwire.OpGetChildren:
		words = []any{sorted(m.Strings())}
	case zkwire.OpGetChildren2:
		words = append([]any{sorted(m.Strings())}, t.stat(m)...)
	case zkwire.OpGetACL:
		words = append([]any{t.acl(m)}, t.stat(m)...)
	case zkwire.OpSync:
		words = []any{quote(m.Buffer())}
		if s := words[0].(string); strings.Contains(s, t.at.root) {
			words[0] = strings.ReplaceAll(s, t.at.root, "{root}")
		}
	case zkwire.OpGetEphemerals:
		words = []any{t.paths(m.Strings())}
	case zkwire.OpCountChildren, zkwire.OpAddWatch:
		words = []any{m.Int32()}
	case zkwire.OpWhoAmI:
		var ids []string
		for n := m.Int32(); n > 0 && !m.Bad; n-- {
			ids = append(ids, m.String()+":"+strings.ReplaceAll(m.String(), t.at.ip, "{ip}"))
		}
		words = []any{sorted(ids)}
	case zkwire.OpMulti, zkwire.OpMultiRead:
		words = t.results(m)
	}

	return append(words, t.rest(m))
}

func (t *transcript) results(m *zkwire.Decoder) []any {
	var words []any
	// A result ends with a header that is marked as done.
	for !m.Bad {
		op, done, code := zkwire.Op(m.Int32()), m.Bool(), m.Int32()
		words = append(words, "|", op, named(code))
		if done {
			break
		}
		switch op {
		case zkwire.OpError:
			words = append(words, m.Int32())
		case zkwire.OpCreate:
			words = append(words, t.path(m.String()))
		case zkwire.OpCreate2:
			words = append(append(words, t.path(m.String())), t.stat(m)...)
		case zkwire.OpSetData:
			words = append(words, t.stat(m)...)
		case zkwire.OpGetData:
			words = append(append(words, quote(m.Buffer())), t.stat(m)...)
		case zkwire.OpGetChildren:
			words = append(words, sorted(m.Strings()))
		}
	}
	return words
}

func (t *transcript) acl(m *zkwire.Decoder) []entry {
	var list []entry
	for n := m.Int32(); n > 0 && !m.Bad; n-- {
		list = append(list, entry{m.Int32(), m.String(), strings.ReplaceAll(m.String(), t.at.ip, "{ip}")})
	}

	// The order of the identities that replace one entry of scheme auth is undefined.
	for i, e := range list {
		for j := i; j > 0 && e.scheme == "digest" && list[j-1].scheme == e.scheme &&
			list[j-1].perms == e.perms && list[j-1].id > e.id; j-- {
			list[j-1], list[j] = e, list[j-1]
		}
	}
	return list
}

// rest returns how a message's length differs from what it should be, or the empty string.
func (t *transcript) rest(m *zkwire.Decoder) string {
	switch {
	case m.Bad:
		return "(too short)"
	case len(m.Rest) > 0:
		return fmt.Sprintf("(then %d bytes)", len(m.Rest))
	}
	return ""
}

func quote(b []byte) string {
	if b == nil {
		return "null"
	}
	return fmt.Sprintf("%q", b)
}

func sorted(list []string) []string {
	slices.Sort(list)
	return list
}
