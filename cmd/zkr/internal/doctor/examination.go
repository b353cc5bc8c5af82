package doctor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/internal/zkwire"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Config configures an examination.
type Config struct {
	Servers string                   // a connect string
	Options []protocol.ConnectOption // for all sessions
	Dial    zk.Dialer                // as in Options; nil for plain TCP
	Timeout time.Duration            // the session timeout to request
	Limit   time.Duration            // the longest wait for a session
	Path    string                   // the examination creates its node below this path and removes it
}

// An examination is one run.
type examination struct {
	Config
	report  func(Finding)
	members []*member
	chroot  string

	client    *protocol.Client
	words     zk.Dialer // for four-letter words, which are counted where they are sent
	requests  atomic.Int64
	writable  bool // nodes can be created below Path
	firstTick tick
}

func newExamination(cfg Config) *examination {
	e := &examination{Config: cfg, words: cfg.Dial}
	if e.words == nil {
		e.words = net.DialTimeout
	}

	e.Options = append(cfg.Options[:len(cfg.Options):len(cfg.Options)], protocol.WithDialer(counting(e.words, &e.requests)))
	hosts, _, _ := strings.Cut(cfg.Servers, "/")
	for address := range strings.SplitSeq(hosts, ",") {
		// 2181 is the default port.
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), "2181")
		}

		e.members = append(e.members, &member{address: address})
	}
	e.chroot = strings.TrimSuffix(cfg.Servers[len(hosts):], "/")
	return e
}

// within calls do in a new session with some servers.
func (e *examination) within(
	ctx context.Context, servers string, do func(context.Context, *recipe.Session) error, more ...protocol.ConnectOption,
) error {
	c, err := e.connect(ctx, servers, more...)
	if err != nil {
		return err
	}

	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	s, err := recipe.SessionOf(ctx, c)
	if err != nil {
		return err
	}
	return do(ctx, s)
}

// connect opens a session with some servers.
func (e *examination) connect(ctx context.Context, servers string, more ...protocol.ConnectOption) (*protocol.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	return protocol.Connect(ctx, servers, append(e.Options[:len(e.Options):len(e.Options)], more...)...)
}

// scratch creates the node for all writes, and reports whether it could.
func (e *examination) scratch(ctx context.Context) bool {
	f := Finding{Check: "session", Status: OK, Looked: "a session with " + e.Servers + ", and a write below " + e.Path}
	s, err := recipe.SessionOf(ctx, e.client)
	if err == nil {
		e.Path = strings.TrimSuffix(e.Path, "/") + "/zkr-doctor-" + s.NewOwner().String()
		_, err = s.EnsurePath(ctx, e.Path)
	}

	if err == nil {
		// This node ends with the session, even if clean fails.
		err = s.Create(ctx, e.clockNode(), nil, zk.FlagEphemeral)
	}

	if err == nil || errors.Is(err, zk.ErrNodeExists) { // from our own first attempt
		e.writable = true
		f.Found = fmt.Sprintf("session %#x, with a timeout of %v", uint64(s.ID()), s.Timeout())
	} else {
		f.Status, f.Found = Fail, fmt.Sprintf("cannot write: %v", err)
		f.Do = "give a credential with --auth, or a path that you may write; the checks that write are left out"
	}

	e.report(f)
	return e.writable
}

func (e *examination) clockNode() string { return e.Path + "/clock" }

func (e *examination) lockPath() string { return e.Path + "/lock" }

// clean removes the nodes of the examination. Ephemeral nodes end with their sessions anyway.
func (e *examination) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), e.Limit)
	defer cancel()
	if s, err := recipe.SessionOf(ctx, e.client); err == nil {
		for _, node := range []string{e.clockNode(), e.lockPath(), e.Path} {
			s.Delete(ctx, node, -1) //nolint:errcheck // empty containers go by themselves
		}
	}
}

// absolute asks for a node outside the chroot.
func absolute[T any](ctx context.Context, e *examination, ask func(*zk.Conn) (T, *zk.Stat, error)) (answer T, err error) {
	s, err := recipe.SessionOf(ctx, e.client)
	if err != nil {
		return answer, err
	}
	return recipe.Do(ctx, s, func(c *zk.Conn) (T, error) {
		answer, _, err := ask(c)
		return answer, err
	})
}

// counting returns a dialer whose connections count their requests.
func counting(dial zk.Dialer, requests *atomic.Int64) zk.Dialer {
	return func(network, address string, limit time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, limit)
		if err != nil {
			return nil, err
		}

		return &counted{Conn: conn, requests: requests}, nil
	}
}

// A counted is a connection of a client that writes one request after another.
type counted struct {
	net.Conn
	requests *atomic.Int64
	pending  []byte // the beginning of a request
}

func (c *counted) Write(b []byte) (int, error) {
	// A client's own frames are sound, so there is no error.
	frame, rest, _ := zkwire.CutFrame(append(c.pending, b...), math.MaxInt32)
	for ; frame != nil; frame, rest, _ = zkwire.CutFrame(rest, math.MaxInt32) {
		c.requests.Add(1)
	}
	c.pending = rest
	return c.Conn.Write(b)
}

// A Status says how bad a finding is.
type Status string

// The statuses. Unknown means that the check could not find out.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Unknown Status = "unknown"
)

// A Finding is the result of a check.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Looked string `json:"looked"`       // the evidence
	Found  string `json:"found"`        // the result
	Do     string `json:"do,omitempty"` // the advice; empty if there is none
}
