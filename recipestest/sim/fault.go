package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/recipestest"
)

// A Kind is a kind of fault.
type Kind string

// What can befall a client.
const (
	Cut          Kind = "cut"           // its connections are reset, and new ones refused
	Stall        Kind = "stall"         // nothing passes, and nobody notices
	LostRequests Kind = "lost requests" // nothing passes towards the server
	LostReplies  Kind = "lost replies"  // nothing passes towards the client
	LoseReply    Kind = "lose a reply"  // one or two requests are executed, and their answers are lost with the connection
	Slow         Kind = "slow network"  // latency of up to a quarter of a session timeout
	Resume       Kind = "second resume" // another connection takes the session over for some time
	Expiry       Kind = "expiry"        // the server ends the session by force
	Pause        Kind = "pause"         // the process stands still
	Isolation    Kind = "no leader"     // its server answers pings and nothing else, having lost its leader
	Lag          Kind = "lag"           // its follower lags behind the leader, by up to a session timeout
	CutTwice     Kind = "cut twice"     // see cutTwice: aimed at the moments after it has connected again
	Deletion     Kind = "operator"      // an ephemeral node below World.Path, of whomever, is deleted
)

// What can befall the server.
const (
	Drop    Kind = "drop all connections"
	Restart Kind = "restart" // connections are refused meanwhile; sessions are kept, as all servers of an ensemble restart
	Reap    Kind = "reap"    // containers that are empty, and have not always been so, are deleted
)

var clientKinds = []Kind{Cut, Stall, LostRequests, LostReplies, LoseReply, Slow, Resume, Expiry, Pause, Isolation, Lag, CutTwice, Deletion}

// A kind that stands more than once is drawn more often.
var allKinds = append(slices.Clone(clientKinds), Drop, Restart, Reap, CutTwice, CutTwice)

// lasting are the kinds that take a time, which matters.
var lasting = []Kind{Cut, Stall, LostRequests, LostReplies, Slow, Resume, Pause, Isolation, Lag, CutTwice, Restart}

// A Fault is something that befalls a client, or the server.
type Fault struct {
	At     time.Duration // since the world began
	Kind   Kind
	Client int // the first is 1; 0 for the server
	Lasts  time.Duration
	pick   int
	index  int    // in the schedule
	done   string // what came of it
}

// String tells the fault in one line.
func (f Fault) String() string {
	s := fmt.Sprintf("%9.6fs  %-9s  %s", f.At.Seconds(), f.victim(), f.Kind)
	if slices.Contains(lasting, f.Kind) {
		s += fmt.Sprintf(" for %v", f.Lasts.Round(time.Microsecond))
	}
	if f.done != "" {
		s += ": " + f.done
	}
	return s
}

func (f Fault) victim() string {
	if f.Client == 0 {
		return "server"
	}
	return fmt.Sprintf("client %d", f.Client)
}

// draw draws the schedule of faults, which does not depend on what the simulation has drawn.
func (w *World) draw(o options) []Fault {
	if len(o.kinds) == 0 {
		return nil
	}
	r := w.random(1)
	kinds := slices.Clone(o.kinds)
	if r.IntN(2) == 0 { // a few kinds alone get further than all of them together
		r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
		kinds = kinds[:min(len(kinds), 1+r.IntN(3))]
	}
	var all []Fault
	for range r.IntN(9) {
		f := Fault{
			At:    w.Now() + upto(r, 6*w.Timeout),
			Kind:  kinds[r.IntN(len(kinds))],
			Lasts: w.spell(r),
			pick:  r.IntN(1 << 20),
		}
		if f.Kind == CutTwice {
			f.At = w.Now() + (f.At-w.Now())/4 // it waits for its moment, and most work is done early
		}
		victim := r.IntN(1 << 20)
		if slices.Contains(clientKinds, f.Kind) && f.Kind != Deletion {
			if len(w.clients) == 0 {
				continue
			}
			f.Client = 1 + victim%len(w.clients)
		}
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	for i := range all {
		all[i].index = i
	}
	return slices.DeleteFunc(all, func(f Fault) bool { return slices.Contains(o.skip, f.index) })
}

func (w *World) spell(r *rand.Rand) time.Duration {
	most := []time.Duration{w.Timeout / 20, w.Timeout / 2, w.Timeout, 3 * w.Timeout}
	return upto(r, most[r.IntN(len(most))])
}

// befall has the faults happen, until all are over or ctx ends.
func (w *World) befall(ctx context.Context, all []Fault) {
	end := w.Now()
	for i := range all {
		f := &all[i]
		if !sleep(ctx, f.At-w.Now()) {
			break
		}
		f.At = w.Now()
		f.done = w.strike(ctx, *f)
		w.record.fault(*f)
		end = max(end, w.Now(), w.Now()+f.Lasts)
	}
	sleep(ctx, end-w.Now())
}

// strike has one fault begin.
func (w *World) strike(ctx context.Context, f Fault) (done string) {
	if f.Client == 0 {
		return w.strikeServer(ctx, f)
	}
	c := w.clients[f.Client-1]
	switch f.Kind {
	case Cut:
		c.Link.Cut()
	case Stall:
		c.Link.Stall()
	case LostRequests:
		c.Link.StallRequests()
	case LostReplies:
		c.Link.StallReplies()
	case Isolation:
		c.Link.Isolate()
	case Slow:
		c.Link.Delay(c.latency + time.Duration(f.pick)*w.Timeout/4/(1<<20))
		time.AfterFunc(f.Lasts, func() { c.Link.Delay(c.latency) })
		return ""
	case Lag:
		// Mostly by so little that requests are answered while they are waited for.
		part := float64(f.pick) / (1 << 20)
		behind := time.Duration(part * part * float64(w.Timeout))
		c.follower.Lag(behind)
		time.AfterFunc(f.Lasts, func() { c.follower.Lag(0) })
		return fmt.Sprintf("by %v", behind.Round(time.Microsecond))
	case CutTwice:
		return c.cutTwice(f)
	case LoseReply:
		c.Link.LoseReply(recipestest.OpAny, 1+f.pick%2)
		return ""
	case Resume:
		if err := c.resumeAgain(ctx, f.Lasts); err != nil {
			return err.Error()
		}
		return ""
	case Expiry:
		id := c.sessionID()
		if !w.Server.Embedded().ExpireSession(id) {
			return "it had none"
		}
		w.forced.session(id)
		return fmt.Sprintf("session %#x", id)
	case Pause:
		c.standStill(f.Lasts)
		return ""
	}
	time.AfterFunc(f.Lasts, c.Link.Heal)
	return ""
}

func (w *World) strikeServer(ctx context.Context, f Fault) (done string) {
	e := w.Server.Embedded()
	switch f.Kind {
	case Drop:
		e.DropConnections()
	case Restart:
		e.Stop()
		time.AfterFunc(f.Lasts, func() { e.Resume() })
	case Reap:
		e.ReapContainers()
	case Deletion:
		return w.deleteOne(ctx, f.pick)
	}
	return ""
}

// deleteOne deletes an ephemeral node.
func (w *World) deleteOne(ctx context.Context, pick int) (done string) {
	ctx, cancel := context.WithTimeout(ctx, w.Timeout/4)
	defer cancel()
	nodes, stats, err := w.ephemerals(ctx, w.Path)
	if err != nil || len(nodes) == 0 {
		return "finds no node"
	}
	s, err := w.Operator().Session(ctx)
	if err != nil {
		return err.Error()
	}
	i := pick % len(nodes)
	w.forced.node(nodes[i], stats[i].Czxid)
	if err := s.Conn().Delete(nodes[i], -1); err != nil && err != zk.ErrNoNode {
		return err.Error()
	}
	return "deletes " + nodes[i]
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
