package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// leaderElection shows election.Election: candidates lead one after the other, and an observer
// follows.
func leaderElection(ctx context.Context, t *tour) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	e := &electionChapter{tour: t, path: t.root + "/election", seen: make(chan election.Leader)}
	e.election = election.New(t.guide, e.path)
	defer func() {
		cancel()
		e.close()
	}()

	t.say("  Three candidates want to lead. The others follow the leader.\n")
	e.busy.Go(func() { e.observe(ctx) })
	var all [3]*candidate
	for i := range all {
		all[i] = &candidate{name: fmt.Sprintf("candidate %d", i+1), won: make(chan error, 1)}
		if err := e.come(ctx, all[i]); err != nil {
			return err
		}

		if i == 0 {
			err = e.leads(ctx, all[i])
		} else {
			err = e.waits(ctx, all[i])
		}
		if err != nil {
			return err
		}

		if err := sleep(ctx, t.pace); err != nil {
			return err
		}
	}

	t.say("\n  A leader is lost, another resigns, and each time the next in line takes over.\n")
	if err := e.strike(ctx, all[0]); err != nil {
		return err
	}
	if err := e.leads(ctx, all[1]); err != nil {
		return err
	}
	if err := e.stop(ctx, all[0]); err != nil {
		return err
	}

	for i, c := range all[1:] {
		if err := sleep(ctx, t.pace); err != nil {
			return err
		}
		t.tell(c.name, "resigns")
		e.vacated = time.Now()
		if err := c.term.Resign(ctx); err != nil {
			return err
		}
		if i == 0 {
			if err := e.leads(ctx, all[2]); err != nil {
				return err
			}
		}
	}

	if err := e.sees(ctx, election.Leader{}, "that no candidate leads"); err != nil {
		return err
	}

	t.say("\n  Every leader had a greater fencing token than those before.")
	return nil
}

type electionChapter struct {
	*tour
	path     string
	election *election.Election   // the guide's
	seen     chan election.Leader // what the observer sees
	clients  []*protocol.Client
	busy     sync.WaitGroup
	token    int64     // of the latest leader
	vacated  time.Time // when the latest leader went; zero at first
}

type candidate struct {
	name   string
	client *protocol.Client
	won    chan error // how its campaign ended
	at     time.Time  // when
	term   *election.Term
}

// observe follows the election until ctx ends.
func (e *electionChapter) observe(ctx context.Context) {
	for leader, err := range e.election.Observe(ctx) {
		if err != nil {
			return // ctx's, or one that the candidates meet as well
		}
		select {
		case e.seen <- leader:
		case <-ctx.Done():
			return
		}
	}
}

// sees waits until the observer sees a certain leader.
func (e *electionChapter) sees(ctx context.Context, leader election.Leader, what string) error {
	for {
		select {
		case l := <-e.seen:
			if l.Token == leader.Token && string(l.Value) == string(leader.Value) {
				e.tell("an observer", "sees", what)
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// come makes a candidate campaign, in a session of its own.
func (e *electionChapter) come(ctx context.Context, c *candidate) (err error) {
	if c.client, err = e.connect(ctx); err != nil {
		return err
	}
	e.clients = append(e.clients, c.client)
	e.busy.Go(func() {
		var err error
		c.term, err = election.New(c.client, e.path).Campaign(ctx, []byte(c.name))
		c.at = time.Now()
		c.won <- err
	})
	return nil
}

// waits prints behind which contender a candidate is, as soon as it is in line.
func (e *electionChapter) waits(ctx context.Context, c *candidate) error {
	for {
		line, err := e.election.Candidates(ctx)
		if err != nil {
			return err
		}
		if n := len(line); n > 1 && string(line[n-1].Value) == c.name {
			e.tell(c.name, "waits in line", "behind "+string(line[n-2].Value))
			return nil
		}
		if err := sleep(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}

// leads waits until a candidate is elected and the observer sees it, and fails if that breaks a
// promise.
func (e *electionChapter) leads(ctx context.Context, c *candidate) error {
	select {
	case err := <-c.won:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return context.Cause(ctx)
	}

	token := c.term.Token()
	if token <= e.token {
		return fmt.Errorf("%s leads with token %d, after %d", c.name, token, e.token)
	}

	e.token = token
	more := fmt.Sprintf("token %d", token)
	if !e.vacated.IsZero() {
		more += fmt.Sprintf(", %.1f ms later", float64(c.at.Sub(e.vacated))/float64(time.Millisecond))
	}

	e.tell(c.name, "leads", more)
	return e.sees(ctx, election.Leader{Value: []byte(c.name), Token: token}, "that "+c.name+" leads")
}

// strike takes the leadership away from the leader.
func (e *electionChapter) strike(ctx context.Context, c *candidate) error {
	if e.embedded == nil {
		// We may not end sessions of a real ensemble. Its operators depose a leader like this.
		e.tell("an operator", "deposes", c.name+", by deleting its node")
		e.vacated = time.Now()
		return e.election.Break(ctx, c.term.Node())
	}

	s, err := c.client.Session(ctx)
	if err != nil {
		return err
	}

	e.tell("ZooKeeper", "ends a session", "that of "+c.name+", as if it had crashed")
	e.vacated = time.Now()
	e.embedded.ExpireSession(s.ID())
	return nil
}

// stop waits until a leader learns that its term is lost.
func (e *electionChapter) stop(ctx context.Context, c *candidate) error {
	select {
	case <-c.term.Done():
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	err := c.term.Err()
	if !errors.Is(err, protocol.ErrLost) {
		return fmt.Errorf("%s lost its term: %w", c.name, err)
	}
	e.tell(c.name, "is told to stop", "its term is over, and the reason is", err.Error())
	return nil
}

// close ends all sessions, and the observation. The ctx of the chapter must have ended before.
func (e *electionChapter) close() {
	for _, c := range e.clients {
		c.Close()
	}
	e.busy.Wait()
}
