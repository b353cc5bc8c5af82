package doctor

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A member is a server of the connect string.
type member struct {
	address string
	srvr    string // the answer to srvr; empty without an answer
	closed  bool   // the server is up but refuses srvr
	err     error  // why the server does not serve
}

// field returns a line of the answer to srvr ("Mode", for example).
func (m *member) field(name string) string {
	for line := range strings.Lines(m.srvr) {
		if value, ok := strings.CutPrefix(line, name+": "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// version returns the version without the build ("3.8.0").
func (m *member) version() string {
	version := m.field("Zookeeper version")
	if i := strings.IndexAny(version, "-,"); i >= 0 {
		version = version[:i]
	}
	return version
}

func (m *member) describe() string {
	switch {
	case m.err != nil:
		return fmt.Sprintf("%s does not serve (%v)", m.address, m.err)
	case m.closed:
		return m.address + " serves (srvr is closed)"
	}
	return fmt.Sprintf("%s %s, version %s, zxid %s", m.address, m.field("Mode"), m.version(), m.field("Zxid"))
}

const (
	askLimit  = 10 * time.Second // the longest wait for the answer to a four-letter word
	maxAnswer = 16 << 20
)

// ask sends a four-letter word to a server and returns the answer.
func (e *examination) ask(ctx context.Context, address, word string) (string, error) {
	limit := min(askLimit, e.Limit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	e.requests.Add(1)

	conn, err := e.words("tcp", address, limit)
	if err != nil {
		return "", err
	}

	defer conn.Close()

	// Close the connection to end a read that hangs.
	defer context.AfterFunc(ctx, func() { conn.Close() })()

	if _, err := io.WriteString(conn, word); err != nil {
		return "", err
	}

	answer, err := io.ReadAll(io.LimitReader(conn, maxAnswer))

	// Servers close the connection after the answer, so an error can follow it.
	if len(answer) > 0 {
		return string(answer), nil
	}

	if ctx.Err() != nil {
		return "", fmt.Errorf("no answer within %v", limit)
	}
	return "", err
}

// isClosed reports whether an answer says that the server refuses the word.
func isClosed(answer string) bool { return strings.Contains(answer, "not in the whitelist") }

// askMembers asks all servers for their state at the same time.
func (e *examination) askMembers(ctx context.Context) Finding {
	var wg sync.WaitGroup
	for _, m := range e.members {
		wg.Go(func() { m.err = e.askMember(ctx, m) })
	}

	wg.Wait()

	f := Finding{Check: "servers", Status: OK, Looked: "the answer of each server of the connect string to srvr"}
	var lines []string
	down := 0
	for _, m := range e.members {
		lines = append(lines, m.describe())
		if m.err != nil {
			down++
		}
	}

	f.Found = strings.Join(lines, "; ")
	switch {
	case down == len(e.members):
		f.Status, f.Do = Fail, "bring the servers up; check addresses, firewalls and TLS"
	case down > 0:
		f.Status, f.Do = Warn, "bring the server up, or take it out of the connect string: clients lose time there when they reconnect"
	}
	return f
}

func (e *examination) askMember(ctx context.Context, m *member) error {
	answer, err := e.ask(ctx, m.address, "srvr")
	switch {
	case err != nil:
		return err
	case isClosed(answer):
		m.closed = true
		return nil
	case strings.Contains(answer, "not currently serving"):
		return fmt.Errorf("it is up, and has no quorum")
	case answer == "":
		return fmt.Errorf("it closed the connection")
	}

	m.srvr = answer
	return nil
}

// serving returns the members that serve.
func (e *examination) serving() []*member {
	return slices.DeleteFunc(slices.Clone(e.members), func(m *member) bool { return m.err != nil })
}

// askAny returns the first answer of a server (or nothing).
func (e *examination) askAny(ctx context.Context, word string) string {
	for _, m := range e.serving() {
		if answer, err := e.ask(ctx, m.address, word); err == nil && !isClosed(answer) && answer != "" {
			return answer
		}
	}
	return ""
}

// conf returns the numbers in a server's configuration, if a server tells it.
func (e *examination) conf(ctx context.Context) map[string]int { return numbers(e.askAny(ctx, "conf")) }

var number = regexp.MustCompile(`(\w+)[=\t](-?\d+)`)

// numbers returns the numbers in an answer or a quota by their names.
func numbers(text string) map[string]int {
	all := make(map[string]int)
	for _, m := range number.FindAllStringSubmatch(text, -1) {
		all[m[1]], _ = strconv.Atoi(m[2]) // only digits
	}
	return all
}
