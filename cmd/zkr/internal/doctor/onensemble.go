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

// A witness is a server that should have a node which was created at another server.
type witness struct {
	address string
	err     error // why the server could not say
	sees    bool
	lag     time.Duration
}

// oneEnsemble checks that all servers that clients can reach are one ensemble: the servers of the
// connect string, all addresses of their names, and the members that the ensemble names. Two
// ensembles mean two holders of each lock.
func (e *examination) oneEnsemble(ctx context.Context) Finding {
	f := Finding{Check: "one ensemble", Status: OK, Looked: "the node that was created, at each server of the connect string, each address of its name, and each member in /zookeeper/config"}
	modes := make(map[string]int)
	for _, m := range e.serving() {
		modes[m.field("Mode")]++
	}

	// The modes alone can show a split.
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

// addresses returns all known addresses of servers.
func (e *examination) addresses(ctx context.Context) (all []string) {
	for _, m := range e.members {
		all = append(all, m.address)
	}

	_, members, _ := e.voters(ctx) // the quorum check reports the error
	all = append(all, members...)
	for _, address := range slices.Clone(all) {
		host, port, _ := net.SplitHostPort(address)
		if e.Dial != nil { // certificates are for names
			continue
		}

		resolved, _ := net.DefaultResolver.LookupHost(ctx, host) // a name that does not resolve can't answer either
		for _, ip := range resolved {
			if !slices.Contains(resolved, host) && strings.Contains(ip, ":") == strings.Contains(host, ":") {
				all = append(all, net.JoinHostPort(ip, port))
			}
		}
	}

	slices.Sort(all)
	return slices.Compact(all)
}

// question finds out whether a server has the node of this examination (created at another server)
// and how far it lags.
func (e *examination) question(ctx context.Context, w *witness) error {
	if !e.writable {
		return errors.New("there is no node to look for")
	}

	// A session would try again for as long as it may.
	if _, err := e.ask(ctx, w.address, "ruok"); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeout(ctx, min(askLimit, e.Limit))
	defer cancel()
	return e.within(ctx, w.address+e.chroot, func(ctx context.Context, s *recipe.Session) error {
		// After a sync with its leader, the server must have the node.
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
