package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
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
// writes below a node of its own: a megabyte once, and some hundred times little. That node is gone
// in the end. If Run is killed, the servers remove it.
//
// Run blocks for some seconds. It returns ctx's error, or an error about the connect string or the
// path before any I/O. What it cannot reach is a finding.
func Run(ctx context.Context, cfg Config, report func(Finding)) error {
	if err := protocol.ValidatePath(cfg.Path); err != nil {
		return err
	}

	e := &examination{Config: cfg, report: report}
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

	e.askMembers(ctx)
	client, err := e.connect(ctx, cfg.Servers)
	if err != nil {
		e.session(err)
		return ctx.Err()
	}
	defer client.Close()
	e.client = client

	// The clock is looked at twice, with the other checks in between.
	if e.scratch(ctx) {
		defer e.clean()
		e.firstTick = e.tick(ctx)
	}

	for _, check := range []func(context.Context){
		e.versions, e.quorum, e.timeouts, e.lag, e.containers, e.acl, e.words, e.size, e.cost, e.clock,
	} {
		if ctx.Err() == nil {
			check(ctx)
		}
	}
	return ctx.Err()
}

// An examination is one run.
type examination struct {
	Config
	report  func(Finding)
	members []*member
	chroot  string

	client    *protocol.Client
	writable  bool // the path may be written below
	firstTick tick
}

// connect opens a session with some servers.
func (e *examination) connect(ctx context.Context, servers string, more ...protocol.ConnectOption) (*protocol.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, e.Limit)
	defer cancel()
	return protocol.Connect(ctx, servers, append(e.Options[:len(e.Options):len(e.Options)], more...)...)
}

// session reports that there is none.
func (e *examination) session(err error) {
	f := Finding{
		Check: "session", Status: Fail, Looked: "a session with " + e.Servers,
		Found: fmt.Sprintf("none within %v: %v", e.Limit, err),
		Do:    "bring up a quorum of the servers; check addresses, firewalls and TLS",
	}
	if errors.Is(err, zk.ErrAuthFailed) {
		f.Do = "check the credential"
	}

	e.report(f)
}

// scratch creates the node to write below, and reports whether it could.
func (e *examination) scratch(ctx context.Context) bool {
	f := Finding{Check: "session", Status: OK, Looked: "a session with " + e.Servers + ", and a write below " + e.Path}
	s, err := e.client.Session(ctx)
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
	s, err := e.client.Session(ctx)
	if err != nil {
		return
	}

	for _, node := range []string{e.clockNode(), e.lockPath(), e.Path} {
		s.Delete(ctx, node, -1) //nolint:errcheck // empty containers go by themselves
	}
}

// unwritable reports that a check was left out.
func (e *examination) unwritable(check, looked string) {
	e.report(Finding{Check: check, Status: Unknown, Looked: looked, Found: "not looked at: " + e.Path + " may not be written"})
}
