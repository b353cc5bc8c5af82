package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// timeout bounds what takes a session timeout at most, unless something is wrong.
const timeout = 30 * time.Second

var (
	errInterrupted = errors.New("interrupted")
	errTooSlow     = errors.New("timed out: is ZooKeeper running?")
)

// A demo is the parent of the replicas.
type demo struct {
	servers string
	path    string
	began   time.Time
	out     io.Writer

	store    *store
	storeURL string
	client   *protocol.Client
	election *election.Election
	leaders  chan election.Leader // in the order in which they are observed
	replicas []*process
}

// A process is a replica as its parent sees it.
type process struct {
	name  string
	url   string
	cmd   *exec.Cmd
	stdin io.Closer
	lines chan string // of its standard output
}

// run shows everything. It leaves neither processes nor nodes behind, also when ctx ends.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	d := &demo{
		servers: o.servers, out: out, began: time.Now(),
		path:    "/replicated-" + strings.ToLower(rand.Text()[:6]),
		leaders: make(chan election.Leader, 100),
	}

	where := "on the ensemble " + o.servers
	if o.servers == "" {
		server, err := embedded.Start(embedded.Config{TickTime: sessionTimeout / 4})
		if err != nil {
			return err
		}
		defer server.Close()
		d.servers = server.ConnectString()
		where = "on a ZooKeeper inside this program, at " + d.servers
	}

	d.store = &store{}
	server := httptest.NewServer(d.store)
	defer server.Close()
	d.storeURL = server.URL
	fmt.Fprintf(out, "A replicated service, %s.\n\n", where)

	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errInterrupted
		}
	}()

	connect, cancel := context.WithTimeoutCause(ctx, timeout, errTooSlow)
	defer cancel()
	if d.client, err = protocol.Connect(connect, d.servers, protocol.WithSessionTimeout(sessionTimeout)); err != nil {
		return err
	}

	d.election = election.New(d.client, d.path)
	observe, cancel := context.WithCancel(ctx)
	observed := make(chan struct{})
	go func() {
		defer close(observed)
		for l, err := range d.election.Observe(observe) {
			if err != nil {
				return
			}
			d.leaders <- l
		}
	}()

	defer func() {
		err = errors.Join(err, d.end(err == nil))
		cancel()
		<-observed
		d.client.Close() // if the servers are slow to answer, its session ends by itself
	}()

	return d.show(ctx)
}

func (d *demo) show(ctx context.Context) error {
	var last election.Leader
	var leader *process
	for i := 1; i <= 3; i++ {
		p, err := d.start(ctx, fmt.Sprintf("replica %d", i))
		if err != nil {
			return err
		}
		d.tell(p.name, "serves at", p.url)
		if i == 1 { // the others line up behind it
			if leader, last, err = d.next(ctx, last); err != nil {
				return err
			}
			d.tell(leader.name, "leads", fmt.Sprintf("with token %d", last.Token))
		}
	}

	if err := d.write(ctx, d.other(leader), "hello", leader); err != nil {
		return err
	}

	d.say("\n  The leader is killed. Its session expires %v after its last message.\n", sessionTimeout)
	struck := time.Now()
	if err := leader.kill(); err != nil {
		return err
	}
	d.tell(leader.name, "is killed", "")

	leader, last, err := d.takesOver(ctx, last, struck)
	if err != nil {
		return err
	}

	if err := d.write(ctx, d.other(leader), "hello again", leader); err != nil {
		return err
	}

	d.say("\n  The new leader is stopped in the middle of a write, and continues when another one leads.\n")
	stopped := leader
	late := make(chan answer, 1)
	go func() { late <- put(ctx, stopped.url+"/value?dawdle="+sessionTimeout.String(), "too late") }()
	if err := stopped.says(ctx, "dawdling"); err != nil {
		return err
	}

	struck = time.Now()
	if err := stopped.cmd.Process.Signal(sigStop); err != nil {
		return err
	}
	d.tell(stopped.name, "is stopped", "after its check that it leads, before its write")

	if leader, last, err = d.takesOver(ctx, last, struck); err != nil {
		return err
	}
	if err := d.write(ctx, leader, "in time", leader); err != nil {
		return err
	}
	if err := stopped.cmd.Process.Signal(sigContinue); err != nil {
		return err
	}
	d.tell(stopped.name, "runs on", "and writes")

	a := <-late
	if a.err != nil {
		return a.err
	}

	if a.status != http.StatusPreconditionFailed || d.store.content() != "in time" {
		return fmt.Errorf("the late write was answered with %d %s, and the value is %q", a.status, a.text, d.store.content())
	}
	d.tell("the store", "refuses that", a.text)

	if err := d.write(ctx, stopped, "from a follower", leader); err != nil {
		return err
	}

	d.say("\n  The store took no write from a replica that had lost the leadership. Fin.")
	return nil
}

// next waits for a leader other than the last.
func (d *demo) next(ctx context.Context, last election.Leader) (*process, election.Leader, error) {
	late := time.After(timeout)
	for {
		select {
		case l := <-d.leaders:
			if l.Vacant() || l.Token == last.Token {
				continue
			}
			if l.Token < last.Token {
				return nil, l, fmt.Errorf("leader %d after %d", l.Token, last.Token)
			}
			for _, p := range d.replicas {
				if p.url == string(l.Value) {
					return p, l, nil
				}
			}
			return nil, l, fmt.Errorf("%s leads, but is no replica", l.Value)

		case <-late:
			return nil, last, errors.New("no replica takes over")
		case <-ctx.Done():
			return nil, last, context.Cause(ctx)
		}
	}
}

func (d *demo) takesOver(ctx context.Context, last election.Leader, struck time.Time) (*process, election.Leader, error) {
	p, l, err := d.next(ctx, last)
	if err == nil {
		d.tell(p.name, "takes over", fmt.Sprintf("with token %d, %.2f s later", l.Token, time.Since(struck).Seconds()))
	}
	return p, l, err
}

// other returns a replica that lives and does not lead.
func (d *demo) other(leader *process) *process {
	for _, p := range d.replicas {
		if p != leader && p.cmd.ProcessState == nil {
			return p
		}
	}
	return leader
}

// write sends a write to one replica. It must reach the store by way of the leader.
func (d *demo) write(ctx context.Context, via *process, value string, leader *process) error {
	for began := time.Now(); ; {
		var known, own status // the leader itself may be the last to learn that it leads
		if err := check(ctx, via.url+"/leader", &known); err != nil {
			return err
		}
		if err := check(ctx, leader.url+"/leader", &own); err != nil {
			return err
		}

		a := answer{status: http.StatusServiceUnavailable}
		if known.Leader == leader.url && own == known { // otherwise they would redirect to a dead or stopped replica
			a = put(ctx, via.url+"/value", value)
		}

		switch {
		case a.err != nil:
			return a.err
		case a.status == http.StatusOK && strings.HasPrefix(a.from, leader.url) && d.store.content() == value:
			route := "itself"
			if via != leader {
				route = "sent on to " + leader.name
			}
			d.tell(via.name, "gets a write", fmt.Sprintf("%q, %s, %s", value, route, a.text))
			return nil
		case a.status != http.StatusServiceUnavailable || time.Since(began) > timeout:
			return fmt.Errorf("a write was answered with %d %s by %s", a.status, a.text, a.from)
		}

		if err := sleep(ctx, 20*time.Millisecond); err != nil { // it does not know the leader yet
			return err
		}
	}
}

type answer struct {
	status int
	text   string
	from   string // URL
	err    error
}

func put(ctx context.Context, url, value string) answer {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*timeout, errTooSlow)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, url, strings.NewReader(value))
	if err != nil {
		return answer{err: err}
	}

	request.Close = true
	r, err := http.DefaultClient.Do(request) // it follows redirects
	if err != nil {
		return answer{err: err}
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	return answer{r.StatusCode, strings.TrimSpace(string(text)), r.Request.URL.String(), err}
}

// start starts a copy of this program as a replica, and returns once it serves and is in line.
func (d *demo) start(ctx context.Context, name string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	p := &process{name: name, lines: make(chan string, 100)}
	p.cmd = exec.Command(self, "-replica", name, "-servers", d.servers, "-path", d.path, "-store", d.storeURL,
		"-timeout", sessionTimeout.String())
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}

	d.replicas = append(d.replicas, p)

	go func() {
		defer close(p.lines)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.lines <- lines.Text()
		}
	}()

	if p.url, err = p.line(ctx); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}

	return p, d.healthy(ctx, p)
}

// healthy waits until a replica is healthy and in line.
func (d *demo) healthy(ctx context.Context, p *process) error {
	for began := time.Now(); ; {
		line, err := d.election.Candidates(ctx)
		if err != nil {
			return err
		}

		for _, c := range line {
			if string(c.Value) == p.url {
				return check(ctx, p.url+"/healthz", nil)
			}
		}

		if time.Since(began) > timeout {
			return fmt.Errorf("%s does not campaign", p.name)
		}

		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// check sends a GET to a replica, which must answer 200, and decodes the answer.
func check(ctx context.Context, url string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}

	request.Close = true
	r, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, r.Status)
	}

	if into == nil {
		return nil
	}

	return json.NewDecoder(r.Body).Decode(into)
}

// line returns the next line that a replica prints.
func (p *process) line(ctx context.Context) (string, error) {
	select {
	case l, ok := <-p.lines:
		if !ok {
			return "", errors.New("the process has ended")
		}
		return l, nil
	case <-time.After(timeout):
		return "", errTooSlow
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// says waits until a replica prints a line.
func (p *process) says(ctx context.Context, want string) error {
	for {
		l, err := p.line(ctx)
		if err != nil || l == want {
			return err
		}
	}
}

func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	p.cmd.Wait() // returns that it was killed
	return nil
}

// end ends all replicas, and removes their nodes from ZooKeeper. If all went well, they must exit
// without an error.
func (d *demo) end(well bool) (err error) {
	for _, p := range d.replicas {
		if p.cmd.ProcessState != nil {
			continue
		}

		p.stdin.Close()
		grace := time.Second // it may be stopped
		if well {
			grace = timeout
		}

		kill := time.AfterFunc(grace, func() { p.cmd.Process.Kill() })
		failed := p.cmd.Wait()
		kill.Stop()
		if failed != nil && well {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.name, failed))
		}
	}

	ctx, cancel := context.WithTimeoutCause(context.Background(), timeout, errTooSlow)
	defer cancel()

	for ctx.Err() == nil {
		line, failed := d.election.Candidates(ctx)
		if failed == nil && len(line) == 0 { // the killed replicas have expired
			break
		}
		sleep(ctx, 50*time.Millisecond)
	}

	s, failed := d.client.Session(ctx)
	if failed != nil {
		return errors.Join(err, failed)
	}

	_, failed = protocol.Do(ctx, s, func(c *zk.Conn) (struct{}, error) {
		return struct{}{}, c.Delete(s.Path(d.path), -1)
	})

	if errors.Is(failed, zk.ErrNoNode) {
		failed = nil
	}

	return errors.Join(err, failed)
}

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format+"\n", args...) }

// tell prints what an actor does, when, and a remark.
func (d *demo) tell(who, what, more string) {
	text := fmt.Sprintf("  %6.3f s  %-10s  %-13s  %s", time.Since(d.began).Seconds(), who, what, more)
	fmt.Fprintln(d.out, strings.TrimRight(text, " "))
}

// sleep waits for d, or until ctx ends.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
