package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/group"
)

// A groupUser joins under a name that it shares with another process (if there are enough). It also
// watches the group all the time.
type groupUser struct {
	*worker
	group  *group.Group
	name   string
	member *group.Member // nil if it hasn't joined

	mu   sync.Mutex // protects seen
	seen []string   // what Watch yielded last
}

// names returns how many names the processes share.
func names(clients int) int { return max(1, clients-1) }

func groupWork(w *worker) workload {
	u := &groupUser{worker: w, group: group.New(w.client, w.Path)}
	u.name = fmt.Sprint("member-", w.Client%names(w.Clients))
	go u.watch()
	return workload{step: u.step, rest: u.leave}
}

func (u *groupUser) watch() {
	for {
		for peers, err := range u.group.Watch(context.Background()) {
			if err != nil {
				break
			}
			u.mu.Lock()
			u.seen = named(peers)
			u.mu.Unlock()
		}
		time.Sleep(beat)
	}
}

// named returns the names of the members with their sessions, sorted.
func named(peers []group.Peer) []string {
	var all []string
	for _, p := range peers {
		all = append(all, fmt.Sprintf("%s of %#x", p.Name, p.Session))
	}
	slices.Sort(all)
	return all
}

func (u *groupUser) step() error {
	ctx, cancel := u.wait()
	defer cancel()
	o := u.call("join", u.name)
	if u.member == nil {
		var err error
		u.member, err = u.group.TryJoin(ctx, u.name, nil)
		switch {
		case errors.Is(err, group.ErrNameTaken) && u.proves:
			u.returns(o, err, Failed)
			// The other process has the name, or a Join that we gave up is still being undone. In
			// the second case the next step will join.
			soon, cancel := context.WithTimeout(ctx, u.Timeout)
			defer cancel()
			return u.converge(soon)
		case err != nil:
			return u.returns(o, err, Failed)
		}
	}

	if u.proves {
		u.returns(o, nil, OK)
		return u.converge(ctx)
	}

	// A member that has lost its session joins again by itself. We count that as another hold.
	for end := time.Now().Add(u.spell()); time.Now().Before(end) && u.life.Err() == nil; {
		if s, err := u.client.Session(ctx); err == nil && u.member.Joined() {
			u.hold(o, memberGrant{u.worker, u.member, s.ID()}, time.Until(end), false)
			o = u.call("join", u.name)
		}
		sleep(u.life, beat)
	}

	u.returns(o, nil, OK)
	return u.leave()
}

func (u *groupUser) leave() error {
	if u.member == nil {
		return nil
	}
	ctx, cancel := u.effect()
	defer cancel()
	o := u.call("leave", u.name)
	err := u.member.Leave(ctx)
	u.member = nil // Leave has given the membership up, whatever it returns
	return u.returns(o, err, Unknown)
}

// converge waits until all names are there and Watch has yielded the servers' state.
func (u *groupUser) converge(ctx context.Context) error {
	if _, err := u.group.Await(ctx, names(u.Clients)); err != nil {
		return err
	}
	for ctx.Err() == nil {
		peers, err := u.group.Members(ctx)
		if err != nil {
			return err
		}
		u.mu.Lock()
		same := slices.Equal(named(peers), u.seen)
		u.mu.Unlock()
		if same {
			return nil
		}
		sleep(u.life, beat)
	}

	return ctx.Err()
}

// A memberGrant is the membership in one session. It asks for the session last: sessions never come
// back, so the member had joined in this session.
type memberGrant struct {
	worker  *worker
	member  *group.Member
	session int64
}

func (g memberGrant) Token() int64 { return 0 }

var errRejoining = errors.New("not joined in that session")

func (g memberGrant) Err() error {
	if !g.member.Joined() {
		return errRejoining
	}
	ctx, cancel := context.WithTimeout(context.Background(), beat)
	defer cancel()
	if s, err := g.worker.client.Session(ctx); err != nil || s.ID() != g.session {
		return errRejoining
	}
	return nil
}

// checkGroup checks that only one process at a time has a name.
func checkGroup(r *Round, name string) error {
	return alone(r.ops(name, "join"), func(a, b *Op) bool { return a.Value == b.Value })
}
