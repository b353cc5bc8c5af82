package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A Status says how grave a finding is.
type Status string

// The statuses. Unknown is for what could not be found out.
const (
	OK      Status = "ok"
	Warn    Status = "warn"
	Fail    Status = "fail"
	Unknown Status = "unknown"
)

// A Finding is what a check has found.
type Finding struct {
	Check  string `json:"check"`
	Status Status `json:"status"`
	Looked string `json:"looked"`       // at what
	Found  string `json:"found"`        // what
	Do     string `json:"do,omitempty"` // about it; empty if nothing
}

// A Config says what to examine.
type Config struct {
	Servers string                   // a connect string
	Options []protocol.ConnectOption // of all sessions
	Dial    zk.Dialer                // as in Options; nil for plain TCP
	Timeout time.Duration            // the session timeout to ask for
	Limit   time.Duration            // how long to wait for a session
	Path    string                   // below which to create a node to write to; it is removed in the end
}

// Run examines the ensemble, and reports each finding when it is there. It opens some sessions, and
// writes below a node of its own: a megabyte once, and some dozen times little. That node is gone
// in the end. If Run is killed, the servers remove it.
//
// Run blocks for some seconds. It returns ctx's error, or an error about the connect string or the
// path before any I/O. What it cannot reach is a finding.
func Run(ctx context.Context, cfg Config, report func(Finding)) error {
	if err := recipe.ValidatePath(cfg.Path); err != nil {
		return err
	}

	e := newExamination(cfg)
	e.report = report
	report(e.askMembers(ctx))
	client, err := e.connect(ctx, cfg.Servers)
	if err != nil {
		report(Finding{
			Check: "session", Status: Fail, Looked: "a session with " + e.Servers,
			Found: fmt.Sprintf("none within %v: %v", e.Limit, err),
			Do:    "bring up a quorum of the servers; check addresses, credentials, firewalls and TLS",
		})
		return ctx.Err()
	}
	defer client.Close()
	e.client = client

	if !e.hasChroot(ctx) {
		return ctx.Err()
	}

	// The clock is looked at twice, with the other checks in between.
	if e.scratch(ctx) {
		defer e.clean()
		e.firstTick = e.tick(ctx)
	}

	for _, check := range []struct {
		writes string // its name, if it does
		run    func(context.Context) Finding
	}{
		{"", e.oneEnsemble}, {"", e.versions}, {"", e.quorum}, {"", e.timeouts}, {"", e.acl},
		{"", e.settings}, {"", e.quotas}, {"request size", e.size}, {"cost", e.cost}, {"clocks", e.clock},
	} {
		switch {
		case ctx.Err() != nil:
		case check.writes != "" && !e.writable:
			report(Finding{Check: check.writes, Status: Unknown, Looked: "nothing", Found: "unknown: " + e.Path + " may not be written"})
		default:
			if f := check.run(ctx); ctx.Err() == nil { // otherwise it says nothing about the ensemble
				report(f)
			}
		}
	}
	report(Finding{
		Check: "requests", Status: OK, Looked: "what this examination has sent",
		Found: fmt.Sprintf("%d requests, in sessions and four-letter words", e.requests.Load()),
	})
	return ctx.Err()
}

// hasChroot reports whether the chroot is there. If not, it is reported: a lock below it would be
// another one than that of the clients which spell it right.
func (e *examination) hasChroot(ctx context.Context) bool {
	if e.chroot == "" {
		return true
	}
	if yes, err := absolute(ctx, e, func(c *zk.Conn) (bool, *zk.Stat, error) { return c.Exists(e.chroot) }); err != nil || yes {
		return true
	}
	e.report(Finding{Check: "chroot", Status: Fail, Looked: "the node " + e.chroot, Found: "there is no such node", Do: "correct the connect string, or create the node"})
	return false
}

func newExamination(cfg Config) *examination {
	e := &examination{Config: cfg}
	e.dial = counting(cfg.Dial, &e.requests)
	e.Options = append(cfg.Options[:len(cfg.Options):len(cfg.Options)], protocol.WithDialer(e.dial))
	hosts, chroot, _ := strings.Cut(cfg.Servers, "/")
	for address := range strings.SplitSeq(hosts, ",") {
		if _, _, err := net.SplitHostPort(address); err != nil {
			address = net.JoinHostPort(strings.Trim(address, "[]"), "2181")
		}
		e.members = append(e.members, &member{address: address})
	}
	if chroot != "" {
		e.chroot = "/" + chroot
	}
	return e
}

// An examination is one run.
type examination struct {
	Config
	report  func(Finding)
	members []*member
	chroot  string

	client    *protocol.Client
	dial      zk.Dialer
	requests  atomic.Int64
	writable  bool // the path may be written below
	firstTick tick
}

// within calls do in a session of its own with some servers.
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

// scratch creates the node to write below, and reports whether it could.
func (e *examination) scratch(ctx context.Context) bool {
	f := Finding{Check: "session", Status: OK, Looked: "a session with " + e.Servers + ", and a write below " + e.Path}
	s, err := recipe.SessionOf(ctx, e.client)
	if err == nil {
		e.Path = strings.TrimSuffix(e.Path, "/") + "/zkr-doctor-" + s.NewOwner().String()
		_, err = s.EnsurePath(ctx, e.Path)
	}
	if err == nil {
		err = s.Create(ctx, e.clockNode(), nil, zk.FlagEphemeral)
	}
	if err == nil || errors.Is(err, zk.ErrNodeExists) { // our own first attempt
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
func (e *examination) sizeNode() string  { return e.Path + "/size" }
func (e *examination) lockPath() string  { return e.Path + "/lock" }

// clean removes what was written. Ephemeral nodes go with their sessions anyway.
func (e *examination) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), e.Limit)
	defer cancel()
	if s, err := recipe.SessionOf(ctx, e.client); err == nil {
		for _, node := range []string{e.clockNode(), e.lockPath(), e.Path} {
			s.Delete(ctx, node, -1) //nolint:errcheck // empty containers go by themselves
		}
	}
}
