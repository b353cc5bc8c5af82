package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// A witness is a server that was asked for the node that another one has.
type witness struct {
	address string
	err     error // why nothing is known
	sees    bool
	lag     time.Duration
}

// oneEnsemble finds out whether all servers that clients may reach are of one ensemble: those of the
// connect string, all addresses of each name, and the members that the ensemble itself names. With
// two ensembles there are two holders of each lock.
func (e *examination) oneEnsemble(ctx context.Context) Finding {
	f := Finding{Check: "one ensemble", Status: OK, Looked: "the node that was created, at each server of the connect string, each address of its name, and each member in /zookeeper/config"}
	modes := make(map[string]int)
	for _, m := range e.serving() {
		modes[m.field("Mode")]++
	}
	split := modes["leader"] > 1 || modes["standalone"] > 1 || modes["standalone"] > 0 && len(e.serving()) > 1
	var witnesses []*witness
	for _, address := range e.addresses(ctx) {
		witnesses = append(witnesses, &witness{address: address})
	}

	var wg sync.WaitGroup
	for _, w := range witnesses {
		wg.Go(func() { w.err = e.question(ctx, w) })
	}
	wg.Wait()

	lag := Finding{Check: "lag", Status: OK, Looked: fmt.Sprintf("%d writes, and when each server shows them", lagRounds)}
	var lines, lags []string
	for _, w := range witnesses {
		switch {
		case w.err != nil:
			lines = append(lines, fmt.Sprintf("%s: unknown (%v)", w.address, w.err))
			if f.Status == OK {
				f.Status = Unknown
			}
		case w.sees:
			lines = append(lines, w.address+" shows it")
			lags = append(lags, fmt.Sprintf("%s at most %v", w.address, round(w.lag)))
			if w.lag > e.Timeout/12 {
				lag.Status, lag.Do = Warn, "look at that server's disk, garbage collection and network: hand-offs wait for it"
			}
		default:
			split = true
			lines = append(lines, w.address+" has no such node")
		}
	}
	if split {
		f.Status = Fail
		f.Do = "take out the servers of other ensembles, or stop a server that runs on its own: as it is, two clients can hold one lock"
		lines = append(lines, fmt.Sprintf("%d leaders, %d standalone", modes["leader"], modes["standalone"]))
	}
	f.Found = strings.Join(lines, "; ")
	if lag.Found = strings.Join(lags, "; "); len(lags) == 0 {
		lag.Status, lag.Found = Unknown, "unknown: no server was seen to show a write"
	}
	if ctx.Err() == nil {
		e.report(lag)
	}
	return f
}

// addresses returns all addresses of servers that are known.
func (e *examination) addresses(ctx context.Context) (all []string) {
	for _, m := range e.members {
		all = append(all, m.address)
	}
	_, members, _ := e.voters(ctx) // which says what it does not know
	all = append(all, members...)
	for _, address := range slices.Clone(all) {
		host, port, _ := net.SplitHostPort(address)
		if e.Dial != nil { // certificates are for names
			continue
		}
		resolved, _ := net.DefaultResolver.LookupHost(ctx, host) // as above: the server does not answer
		for _, ip := range resolved {
			if !slices.Contains(resolved, host) && strings.Contains(ip, ":") == strings.Contains(host, ":") {
				all = append(all, net.JoinHostPort(ip, port))
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// question finds out whether a server has the node that this examination has created elsewhere, and how
// far it lags.
func (e *examination) question(ctx context.Context, w *witness) error {
	if !e.writable {
		return errors.New("there is no node to look for")
	}
	ctx, cancel := context.WithTimeout(ctx, min(askLimit, e.Limit))
	defer cancel()
	return e.within(ctx, w.address+e.chroot, func(ctx context.Context, s *recipe.Session) error {
		// What a server cannot have seen yet, it has seen after a sync with its leader.
		if err := s.Sync(ctx, e.clockNode()); err != nil {
			return err
		}
		stat, err := s.Exists(ctx, e.clockNode())
		if err != nil || stat == nil {
			return err
		}
		w.sees = true
		w.lag, err = e.lagOf(ctx, s)
		return err
	})
}
