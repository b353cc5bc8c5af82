package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/zkrecipes/zkrecipes/cmd/zkr/internal/survey"
	"github.com/zkrecipes/zkrecipes/protocol"
	"github.com/zkrecipes/zkrecipes/protocol/recipe"
)

// FindClients asks all servers for their connections (in a short session with each server) and
// gives the contenders in places, and below, their Client. client is connected to these servers.
func FindClients(ctx context.Context, client *protocol.Client, cfg Config, places []*survey.Place) {
	e := newExamination(cfg)
	e.client = client
	e.askMembers(ctx)
	conf := e.conf(ctx)
	tick := time.Duration(conf["tickTime"]) * time.Millisecond
	longest := time.Duration(conf["maxSessionTimeout"]) * time.Millisecond

	// If we don't know all servers, an unknown server can have the connection.
	unknown := ""
	_, _, err := e.voters(ctx)
	if alone := len(e.members) == 1 && e.members[0].field("Mode") == "standalone"; err != nil && !alone {
		unknown = fmt.Sprintf("which servers there are is not told (%v)", err)
	}

	clients := make(map[int64]*survey.Client)
	var mutex sync.Mutex
	var wg sync.WaitGroup
	for _, address := range e.addresses(ctx) {
		wg.Go(func() {
			found, err := e.clients(ctx, address, tick)
			mutex.Lock()
			defer mutex.Unlock()

			// If the client reconnected meanwhile, the newest answer counts.
			for session, c := range found {
				if clients[session] == nil || c.Heard.After(clients[session].Heard) {
					clients[session] = c
				}
			}
			if err != nil {
				unknown = fmt.Sprintf("%s does not tell: %v", address, err)
			}
		})
	}
	wg.Wait()

	// No server has a connection of the other clients. Their sessions can still last for the
	// longest timeout.
	without := &survey.Client{Unknown: unknown}
	if unknown == "" && longest > 0 && tick > 0 {
		without.Ends = time.Now().Add(longest + 2*tick)
	}

	for _, asked := range places {
		for p := range asked.All() {
			for i := range p.Contenders {
				c := &p.Contenders[i]
				if c.Client = clients[c.Session]; c.Client == nil && c.Session != 0 {
					c.Client = without
				}
			}
		}
	}
}

// consLine matches a line of the answer to cons:
//
//	/10.0.0.7:5555[1](queued=0,recved=4,sent=4,sid=0x10000a1b2c30004,…,to=10000,…,lresp=…)
var consLine = regexp.MustCompile(`(?m)^ ?/(\S+)\[\d+\]\(.*\bsid=0x([0-9a-f]+),.*\bto=(\d+),.*\blresp=(\d+)`)

// clients returns the clients of one server by session. The server says when it last answered a
// client by its own clock. Its answer to our own session is the reference for that clock.
func (e *examination) clients(ctx context.Context, address string, tick time.Duration) (map[int64]*survey.Client, error) {
	found, answered := make(map[int64]*survey.Client), make(map[int64]int64)
	var self int64
	var now time.Time
	err := e.within(ctx, address, func(ctx context.Context, s *recipe.Session) error {
		_, err := s.Exists(ctx, "/")
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}

		self, now = s.ID(), time.Now()
		answer, err := e.ask(ctx, address, "cons")
		if err == nil && (isClosed(answer) || len(answer) == maxAnswer) {
			err = errors.New("the word cons is closed, or its answer is too long")
		}

		for _, m := range consLine.FindAllStringSubmatch(answer, -1) {
			id, _ := strconv.ParseUint(m[2], 16, 64)
			to, _ := strconv.Atoi(m[3])
			answered[int64(id)], _ = strconv.ParseInt(m[4], 10, 64) // only digits

			// The leader gets the news from its servers once a tick, and checks once a tick. By the
			// default limits, a tick is at most half a timeout.
			timeout := time.Duration(to) * time.Millisecond
			ends := now.Add(timeout + 2*cmp.Or(tick, timeout/2))
			found[int64(id)] = &survey.Client{Address: m[1], Server: address, Ends: ends}
		}

		return err
	})

	// Behind a load balancer the word and the session can reach different servers.
	if found[self] == nil && err == nil {
		err = errors.New("it is another server now and then")
	}

	// Turn the server's times into ages, and ages into our times.
	for id, c := range found {
		if answered[self] > 0 && answered[id] > 0 {
			age := time.Duration(max(answered[self]-answered[id], 0)) * time.Millisecond
			c.Heard, c.Ends = now.Add(-age), c.Ends.Add(-age)
		}
	}
	return found, err
}
