package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/nemesis/cluster"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
)

// An embeddedEnsemble is a server inside this process, with followers that clients connect to. It
// needs only Go. Its faults are faults of the clients' networks, and of followers.
type embeddedEnsemble struct {
	server    *embedded.Server
	followers []*embedded.Follower
	aim       cluster.Clients

	mu      sync.Mutex // protects the fields below
	proxies map[int][]*proxy
}

func startEmbedded(members int) (*embeddedEnsemble, error) {
	s, err := embedded.Start(embedded.Config{InMemory: true, TickTime: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	e := &embeddedEnsemble{server: s, proxies: make(map[int][]*proxy)}
	for range members {
		e.followers = append(e.followers, s.Follower())
	}
	return e, nil
}

func (e *embeddedEnsemble) String() string {
	return fmt.Sprintf("the embedded server, with %d followers", len(e.followers))
}

func (e *embeddedEnsemble) Aim(at cluster.Clients) { e.aim = at }

// keepHolder makes a client keep its lock, and returns the client's number. If no client holds a
// lock, it returns any client.
func (e *embeddedEnsemble) keepHolder(r *rand.Rand, clients int) int {
	holders := e.aim.Holders()
	if len(holders) == 0 {
		return r.IntN(clients)
	}
	holder := holders[r.IntN(len(holders))]
	e.aim.Keep(holder)
	return holder
}

// memberOf returns the number of the follower that a client is connected to. If there's none, it
// returns any.
func (e *embeddedEnsemble) memberOf(client int, r *rand.Rand) int {
	used := slices.IndexFunc(e.of(client), (*proxy).used)
	if used < 0 {
		return r.IntN(len(e.followers))
	}
	return used
}

// describe describes a member and its clients.
func (e *embeddedEnsemble) describe(member, clients int) string {
	var connected []int
	for client := range clients {
		if e.of(client)[member].used() {
			connected = append(connected, client)
		}
	}
	return fmt.Sprintf("member %d, of clients %v", member, connected)
}

func (e *embeddedEnsemble) Connect(client int) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.proxies[client] == nil {
		for _, f := range e.followers {
			p, err := newProxy(f.Dial)
			if err != nil {
				return "", err
			}
			e.proxies[client] = append(e.proxies[client], p)
		}
	}

	var addresses []string
	for _, p := range e.proxies[client] {
		addresses = append(addresses, p.address())
	}
	return strings.Join(addresses, ","), nil
}

// of returns the proxies of a client, or of all clients (-1).
func (e *embeddedEnsemble) of(client int) []*proxy {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []*proxy
	for c, proxies := range e.proxies {
		if client < 0 || c == client {
			all = append(all, proxies...)
		}
	}
	return all
}

func (e *embeddedEnsemble) Reset(client int) { each(e.of(client), func(p *proxy) { p.reset() }) }

func each[T any](all []T, do func(T)) {
	for _, one := range all {
		do(one)
	}
}

var embeddedKinds = []string{
	"cut", "lag", "late reports", "lost replies", "lost requests", "member deposed", "member isolated", "restart", "stall",
}

func (e *embeddedEnsemble) Kinds() []string { return slices.Clone(embeddedKinds) }

func (e *embeddedEnsemble) Missing() map[string]string {
	return map[string]string{
		"members that crash, pause, lag behind a quorum, are removed, or have full disks or wrong clocks": "the embedded server is one process",
	}
}

func (e *embeddedEnsemble) Beyond() map[string]string { return nil }

func (e *embeddedEnsemble) Inject(ctx context.Context, kind string, r *rand.Rand, lasts time.Duration, clients int) cluster.Fault {
	f := cluster.Fault{Kind: kind, At: time.Now()}
	first := r.IntN(clients)
	if kind == "member isolated" || kind == "member deposed" {
		first = e.keepHolder(r, clients)
	}
	member := e.memberOf(first, r)
	follower := e.followers[member]
	var struck []int
	var proxies []*proxy
	for client := range clients {
		if client == first || r.IntN(3) == 0 {
			struck = append(struck, client)
			proxies = append(proxies, e.of(client)...)
		}
	}

	f.Detail = fmt.Sprint("clients ", struck)
	heal := func() { each(proxies, (*proxy).heal) }
	switch kind {
	case "cut":
		each(proxies, (*proxy).cut)
	case "stall":
		each(proxies, func(p *proxy) { p.stall(true, true) })
	case "lost requests":
		each(proxies, func(p *proxy) { p.stall(true, false) })
	case "lost replies":
		loseReplies(ctx, proxies, lasts)
		lasts = 0
	case "restart":
		f.Detail = ""
		e.server.Stop()
		heal = func() { f.Err = e.server.Resume() }
	case "lag":
		behind := time.Duration(r.Int64N(int64(time.Second)))
		f.Detail = fmt.Sprintf("%s, by %v", e.describe(member, clients), behind.Round(time.Millisecond))
		if r.IntN(2) == 0 {
			e.aim.Hurry()
		}
		follower.Lag(behind)
		heal = func() { follower.Lag(0) }
	case "late reports":
		f.Detail = e.describe(member, clients)
		follower.Report(embeddedTimeout / 4)
		heal = func() { follower.Report(0) }
	case "member isolated", "member deposed":
		f.Detail = e.describe(member, clients)
		if kind == "member isolated" {
			follower.Isolate()
		} else {
			follower.Depose()
		}
		heal = follower.Rejoin
		lasts += 2 * embeddedTimeout // so that sessions of its clients expire, and other clients get their locks
	}

	select {
	case <-time.After(lasts):
	case <-ctx.Done():
	}
	heal()
	f.Until = time.Now()
	return f
}

// loseReplies loses replies to requests that the server has executed, again and again, and resets
// the connections. The sessions go on.
func loseReplies(ctx context.Context, proxies []*proxy, lasts time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		each(proxies, func(p *proxy) { p.stall(false, true) })
		sleep(ctx, embeddedTimeout/20)
		each(proxies, (*proxy).heal)
		sleep(ctx, embeddedTimeout/10)
	}
}

// embeddedTimeout is the session timeout of clients of the embedded server.
const embeddedTimeout = 2 * time.Second

func (e *embeddedEnsemble) Heal(context.Context) error { return nil } // faults have undone themselves

func (e *embeddedEnsemble) Close() error {
	each(e.of(-1), (*proxy).close)
	return e.server.Close()
}
