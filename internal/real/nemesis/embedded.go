package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/real/nemesis/cluster"
	"github.com/zkrecipes/zkrecipes/recipestest/embedded"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble/reach"
)

// An embeddedEnsemble is a server inside this process, with followers that clients connect to. It
// needs only Go. Its faults are faults of followers and of the clients' networks.
type embeddedEnsemble struct {
	server    *embedded.Server
	followers []*embedded.Follower
	addresses []string // of the followers
	aim       cluster.Clients
	cluster.Links
}

func startEmbedded(members int) (*embeddedEnsemble, error) {
	s, err := embedded.Start(embedded.Config{TickTime: 100 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	e := &embeddedEnsemble{server: s}
	for range members {
		f := s.Follower()
		address, err := f.Listen()
		if err != nil {
			return nil, errors.Join(err, s.Close())
		}
		e.followers, e.addresses = append(e.followers, f), append(e.addresses, address)
	}
	return e, nil
}

func (e *embeddedEnsemble) String() string {
	return fmt.Sprintf("the embedded server, with %d followers", len(e.followers))
}

// Disagreement finds nothing, because all followers have the tree of one server.
func (e *embeddedEnsemble) Disagreement(context.Context) (string, error) { return "", nil }

func (e *embeddedEnsemble) Aim(at cluster.Clients) { e.aim = at }

// keepHolder makes a client keep its lock and returns the client's number. If no client holds a
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
	used := slices.IndexFunc(e.Of(client), (*reach.Link).Used)
	if used < 0 {
		return r.IntN(len(e.followers))
	}
	return used
}

// describe describes a member and its clients.
func (e *embeddedEnsemble) describe(member, clients int) string {
	var connected []int
	for client := range clients {
		if e.Of(client)[member].Used() {
			connected = append(connected, client)
		}
	}
	return fmt.Sprintf("member %d, of clients %v", member, connected)
}

func (e *embeddedEnsemble) Connect(client int) (string, error) {
	return e.Open(client, e.addresses, func(int) *reach.Link { return reach.NewLink() })
}

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

func (e *embeddedEnsemble) Inject(ctx context.Context, kind string, r *rand.Rand, lasts time.Duration, clients int) (detail string, err error) {
	first := r.IntN(clients)
	if kind == "member isolated" || kind == "member deposed" {
		first = e.keepHolder(r, clients)
	}
	member := e.memberOf(first, r)
	follower := e.followers[member]
	// The fault hits one client, and about a third of the others.
	var struck []int
	var links []*reach.Link
	for client := range clients {
		if client == first || r.IntN(3) == 0 {
			struck = append(struck, client)
			links = append(links, e.Of(client)...)
		}
	}

	detail = fmt.Sprint("clients ", struck)
	// Most faults end when the links are sound again.
	heal := func() { each(links, sound) }
	switch kind {
	case "cut":
		each(links, func(l *reach.Link) {
			refused := reach.Traffic{Stalled: true}
			l.Set(refused, refused)
			l.Reset()
		})
	case "stall":
		each(links, func(l *reach.Link) { l.Set(silent, silent) })
	case "lost requests":
		each(links, func(l *reach.Link) { l.Set(silent, reach.Traffic{}) })
	case "lost replies":
		loseReplies(ctx, links, lasts)
		// This fault has lasted long enough already.
		lasts = 0
	case "restart":
		// All clients lose the server.
		detail = ""
		e.server.Stop()
		heal = func() { err = e.server.Resume() }
	case "lag":
		behind := time.Duration(r.Int64N(int64(time.Second)))
		detail = fmt.Sprintf("%s, by %v", e.describe(member, clients), behind.Round(time.Millisecond))
		if r.IntN(2) == 0 {
			e.aim.Hurry()
		}
		follower.Lag(behind)
		heal = func() { follower.Lag(0) }
	case "late reports":
		detail = e.describe(member, clients)
		follower.Report(embeddedTimeout / 4)
		heal = func() { follower.Report(0) }
	case "member isolated", "member deposed":
		detail = e.describe(member, clients)
		if kind == "member isolated" {
			follower.Isolate()
		} else {
			follower.Depose()
		}
		heal = follower.Rejoin
		lasts += 2 * embeddedTimeout // so that sessions of its clients expire, and other clients get their locks
	}

	sleep(ctx, lasts)
	heal()
	return detail, err
}

// silent is a direction in which nothing arrives.
var silent = reach.Traffic{Stalled: true, Silent: true}

// sound ends a fault of a link. The reset comes first: bytes that were stalled are lost.
func sound(l *reach.Link) {
	l.Reset()
	l.Set(reach.Traffic{}, reach.Traffic{})
}

// loseReplies repeatedly loses replies to requests that the server has executed, and resets the
// connections. The sessions go on.
func loseReplies(ctx context.Context, links []*reach.Link, lasts time.Duration) {
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		each(links, func(l *reach.Link) { l.Set(reach.Traffic{}, silent) })
		sleep(ctx, embeddedTimeout/20)
		each(links, sound)
		sleep(ctx, embeddedTimeout/10)
	}
}

// embeddedTimeout is the session timeout of clients of the embedded server.
const embeddedTimeout = 2 * time.Second

func (e *embeddedEnsemble) Heal(context.Context) error { return nil } // faults have undone themselves

func (e *embeddedEnsemble) Close() error {
	e.Links.Close()
	return e.server.Close()
}
