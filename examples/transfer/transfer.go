package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/protocol"
)

// Two-phase commit moves money between accounts whose databases know nothing of each other. It is
// the recipe "Two-phased Commit" of the ZooKeeper documentation, with these nodes below its path:
//
//	participants/<name>/<owner>-<number>    ephemeral: the participant is there
//	open/<owner>-transfer = <id>            a transfer; in the end, its outcome too
//	open/<id>/<name>                        the vote of a participant: empty, commit or abort
//	open/<id>/<owner>-coordinator-<number>  ephemeral: the coordinator waits for the outcome
//
// The coordinator creates a transfer with all its votes in one transaction. Each participant
// prepares its database for the change, which it can then make or take back, and votes. A vote is
// written at version 0 of its node, so it is given once and stands. The votes are the outcome: the
// transfer is committed if all of them say commit. Each process that reads them knows it.
//
// The documentation's recipe cannot tell that a participant has died, as its nodes are not the
// participants' own. Here votes are persistent, and each participant has an ephemeral node besides.
//
// No participant waits for long for a process that has died:
//
//   - A coordinator that dies delays no participant: the transfer is complete, or does not exist.
//   - While a participant has not voted and has no session, any other may vote abort in its place.
//     So the others wait until its session has expired: its timeout, and a tick of the server.
//   - A participant that dies after its vote delays no other. Its own database stays prepared until
//     it is back.
//
// A participant that lives votes once it has read the transfer and prepared its database.

const (
	commit = "commit" // a vote, and an outcome
	abort  = "abort"
	kind   = "transfer" // ends the name of each transfer, whatever else stands beside them
)

// A transfer is what the coordinator asks for.
type transfer struct {
	From, To string
	Amount   int
	Outcome  string `json:",omitempty"` // once a participant has completed it
}

// change returns what the transfer adds to an account, and whether it concerns it.
func (t transfer) change(name string) (amount int, concerned bool) {
	switch name {
	case t.From:
		return -t.Amount, true
	case t.To:
		return t.Amount, true
	}
	return 0, false
}

// layout is where things are below the path of the recipe.
type layout struct{ *protocol.Recipe }

func (l layout) open() string                   { return l.Path() + "/open" }
func (l layout) transfer(id string) string      { return l.open() + "/" + id }
func (l layout) vote(id, name string) string    { return l.transfer(id) + "/" + name }
func (l layout) participant(name string) string { return l.Path() + "/participants/" + name }
func (l layout) read(ctx context.Context, s *protocol.Session, id string) (t transfer, err error) {
	data, _, err := s.Get(ctx, l.transfer(id))
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	return t, err
}

// coordinate asks for a transfer, and reports whether it was committed. It blocks until that is
// decided or ctx ends. If it fails while that may still be decided without it, its error wraps
// [protocol.ErrUncertain].
func coordinate(ctx context.Context, c *protocol.Client, path string, t transfer) (committed bool, err error) {
	l := layout{protocol.NewRecipe(c, "transfer", path)}
	if t.Amount <= 0 || t.From == t.To {
		l.Reject(fmt.Errorf("cannot move %d from %q to %q", t.Amount, t.From, t.To))
	}
	l.Reject(errors.Join(validate(t.From), validate(t.To)))
	s, err := l.Session(ctx)
	if err != nil {
		return false, l.Wrap(err)
	}

	outcome, err := l.coordinate(ctx, s, s.NewOwner().String()+"-"+kind, t)
	if err != nil && (ctx.Err() != nil || s.Err() != nil) {
		err = fmt.Errorf("%w: %w", protocol.ErrUncertain, err)
	}
	return outcome == commit, l.Wrap(err)
}

// coordinate creates a transfer, and returns its outcome. Its own node keeps the transfer there
// until then.
func (l layout) coordinate(ctx context.Context, s *protocol.Session, id string, t transfer) (outcome string, err error) {
	data, err := json.Marshal(t)
	if err != nil {
		return "", err
	}
	node := func(path string, data []byte, flags int32) *zk.CreateRequest {
		return &zk.CreateRequest{Path: s.Path(path), Data: data, Acl: s.ACL(path), Flags: flags}
	}

	coordinator := s.NewOwner().String() + "-coordinator-"
	own, err := s.CreateOwn(ctx, protocol.OwnNode{
		Dir:    l.transfer(id),
		Prefix: coordinator,
		Create: func(c *zk.Conn, _ string) (string, error) {
			answers, err := protocol.Multi(c,
				node(l.transfer(id), data, 0),
				node(l.vote(id, t.From), nil, 0),
				node(l.vote(id, t.To), nil, 0),
				node(l.transfer(id)+"/"+coordinator, nil, zk.FlagEphemeralSequential))
			if err != nil {
				return "", err
			}
			return answers[3].String, nil
		},
		Missing: func(ctx context.Context) error {
			_, err := s.EnsurePath(ctx, l.open())
			return err
		},
	})
	if err != nil {
		return "", err
	}
	defer own.Withdraw(ctx)
	return l.outcome(ctx, s, id, t)
}

// outcome blocks until the outcome of a transfer is decided, and returns it.
func (l layout) outcome(ctx context.Context, s *protocol.Session, id string, t transfer) (string, error) {
	for _, name := range []string{t.From, t.To} {
		if vote, err := l.await(ctx, s, id, name); err != nil || vote == abort {
			return vote, err
		}
	}
	return commit, nil
}

// await blocks until a participant has voted, and returns the vote. In the place of a participant
// that is not there it votes abort.
func (l layout) await(ctx context.Context, s *protocol.Session, id, name string) (vote string, err error) {
	node := l.vote(id, name)
	err = either(ctx, func(ctx context.Context) error {
		_, err := s.WaitNode(ctx, node, func(n *zk.Stat) bool { return n.Version > 0 })
		return err
	}, func(ctx context.Context) error {
		err := s.WaitChildren(ctx, l.participant(name), isEmpty)
		if err == nil {
			_, err = s.Set(ctx, node, []byte(abort), 0)
		}
		if errors.Is(err, zk.ErrBadVersion) || errors.Is(err, zk.ErrNoNode) {
			return nil // there is a vote, or was one
		}
		return err
	})
	if err != nil {
		return "", err
	}

	given, _, err := s.Get(ctx, node)
	if !errors.Is(err, zk.ErrNoNode) {
		return string(given), err
	}

	// It has completed the transfer, and taken its vote away.
	t, err := l.read(ctx, s, id)
	if err == nil && t.Outcome == "" {
		err = fmt.Errorf("vote of %s on transfer %s was deleted by hand", name, id)
	}
	return t.Outcome, err
}

// either calls both functions, and ends the other one's ctx once one has returned. It returns the
// error of the first.
func either(ctx context.Context, calls ...func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	ended := make(chan error, len(calls))
	var wait sync.WaitGroup
	for _, call := range calls {
		wait.Go(func() { ended <- call(ctx) })
	}
	first := <-ended
	stop()
	wait.Wait()
	return first
}

func isEmpty(children []string) bool { return len(children) == 0 }

// A participant has an account, and takes part in the transfers that concern it.
type participant struct {
	layout
	name    string
	account *account
}

func newParticipant(c *protocol.Client, path, name string, a *account) *participant {
	p := &participant{layout{protocol.NewRecipe(c, "transfer", path)}, name, a}
	p.Reject(validate(name))
	return p
}

// validate reports what is wrong with the name of a participant, which is that of its votes.
func validate(name string) error {
	if name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("participant cannot be called %q", name)
	}
	return protocol.ValidatePath("/" + name)
}

// serve takes part in transfers until ctx ends, and returns ctx's error then. After a lost session
// it goes on in the next one. There is one serve at a time for each account.
func (p *participant) serve(ctx context.Context) error {
	_, err := protocol.AcrossSessions(ctx, p.Recipe, func(s *protocol.Session) (struct{}, error) {
		return struct{}{}, p.attend(ctx, s)
	})
	return p.Wrap(err)
}

// attend takes part in transfers under one session.
func (p *participant) attend(ctx context.Context, s *protocol.Session) error {
	own, err := s.CreateOwn(ctx, protocol.OwnNode{
		Dir:    p.layout.participant(p.name),
		Prefix: s.NewOwner().String() + "-",
	})
	if err != nil {
		return err
	}
	defer own.Withdraw(ctx)

	// Each transfer has a goroutine of its own, as one may wait for another participant.
	working, stop := context.WithCancelCause(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer stop(nil)
	var begun []string
	err = s.WaitChildren(working, p.open(), func(open []string) bool {
		for _, id := range open {
			if _, rest, ok := protocol.ParseOwner(id); !ok || rest != kind || slices.Contains(begun, id) {
				continue
			}
			wait.Go(func() {
				if err := p.take(working, s, id); err != nil {
					stop(err)
				}
			})
		}
		begun = open
		return false
	})
	if ctx.Err() == nil {
		err = cmp.Or(context.Cause(working), err)
	}
	return err
}

// take takes part in one transfer. Every step may have been done before, in an earlier session.
func (p *participant) take(ctx context.Context, s *protocol.Session, id string) error {
	t, err := p.read(ctx, s, id)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	change, concerned := t.change(p.name)
	if err != nil || !concerned {
		return err
	}

	_, vote, err := s.Get(ctx, p.vote(id, p.name))
	if err == nil && vote.Version == 0 {
		err = p.cast(ctx, s, id, change)
	}
	if err == nil {
		err = p.complete(ctx, s, id, t)
	}
	if err != nil && !errors.Is(err, zk.ErrNoNode) { // which says that it is complete
		return err
	}

	// The last one to be told of the outcome removes the transfer.
	if err := s.WaitChildren(ctx, p.transfer(id), isEmpty); err != nil {
		return err
	}
	if err := s.Delete(ctx, p.transfer(id), -1); !errors.Is(err, zk.ErrNoNode) {
		return err
	}
	return nil
}

// cast is the first phase. If there is a vote already, the attempt before has given it and its
// answer was lost, or another participant has.
func (p *participant) cast(ctx context.Context, s *protocol.Session, id string, change int) error {
	vote := abort
	if p.account.prepare(id, change) {
		vote = commit
	}
	_, err := s.Set(ctx, p.vote(id, p.name), []byte(vote), 0)
	if errors.Is(err, zk.ErrBadVersion) {
		return nil
	}
	return err
}

// complete is the second phase. The outcome takes the place of the vote.
func (p *participant) complete(ctx context.Context, s *protocol.Session, id string, t transfer) error {
	var err error
	if t.Outcome, err = p.outcome(ctx, s, id, t); err != nil {
		return err
	}
	p.account.settle(id, t.Outcome == commit)

	data, err := json.Marshal(t)
	if err != nil {
		return err
	}
	_, err = s.Multi(ctx,
		&zk.SetDataRequest{Path: p.transfer(id), Data: data, Version: -1},
		&zk.DeleteRequest{Path: p.vote(id, p.name), Version: -1})
	return err
}

// An account stands for a database. It outlives the process that serves it.
type account struct {
	mu       sync.Mutex
	balance  int
	prepared map[string]int // changes by transfer
}

func newAccount(balance int) *account { return &account{balance: balance, prepared: map[string]int{}} }

// prepare reports whether the account is ready for a change. What it is to pay it has put aside.
func (a *account) prepare(id string, change int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, again := a.prepared[id]; again {
		return true
	}
	if a.balance+change < 0 {
		return false
	}
	a.balance += min(change, 0)
	a.prepared[id] = change
	return true
}

// settle makes the change that was prepared, or takes it back.
func (a *account) settle(id string, commit bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if change := a.prepared[id]; commit {
		a.balance += max(change, 0)
	} else {
		a.balance -= min(change, 0)
	}
	delete(a.prepared, id)
}

// state returns the balance, and how many changes are prepared.
func (a *account) state() (balance, prepared int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.balance, len(a.prepared)
}
