package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/zkrecipes/zkrecipes/election"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// sessionTimeout decides how soon a dead leader is succeeded.
var sessionTimeout = 2 * time.Second

// A replica is one copy of the service.
type replica struct {
	url    string
	store  string
	term   atomic.Pointer[election.Term] // not nil while it leads
	leader atomic.Pointer[election.Leader]
}

// status is the answer to /leader.
type status struct {
	Leader string // its URL, or empty
	Token  int64
}

// runReplica serves until standard input ends, which also happens when the parent dies.
func runReplica(o options) error {
	signal.Ignore(os.Interrupt) // it goes to the whole group; the parent handles it
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()

	client, err := protocol.Connect(ctx, o.servers, protocol.WithSessionTimeout(sessionTimeout))
	if err != nil {
		return err
	}
	defer client.Close()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}

	r := &replica{url: "http://" + listener.Addr().String(), store: o.store}
	server := &http.Server{Handler: r.routes()}
	e := election.New(client, o.path)
	var background sync.WaitGroup
	background.Go(func() { server.Serve(listener) })
	background.Go(func() { r.observe(ctx, e) })
	fmt.Println(r.url)

	err = e.Run(ctx, []byte(r.url), r.lead)
	if errors.Is(err, protocol.ErrLost) && ctx.Err() != nil {
		err = nil // its term was lost before the parent ended it
	}
	cancel()
	server.Close()
	background.Wait()
	return err
}

// lead waits until the term is over. The work itself is done by put.
func (r *replica) lead(ctx context.Context, t *election.Term) error {
	r.term.Store(t)
	defer r.term.Store(nil)
	<-ctx.Done()
	return nil
}

// observe remembers the current leader.
func (r *replica) observe(ctx context.Context, e *election.Election) {
	for l, err := range e.Observe(ctx) {
		if err != nil {
			return
		}
		r.leader.Store(&l)
	}
}

func (r *replica) routes() http.Handler {
	routes := http.NewServeMux()
	routes.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	routes.HandleFunc("GET /leader", func(w http.ResponseWriter, _ *http.Request) {
		var s status
		if l := r.leader.Load(); l != nil {
			s = status{string(l.Value), l.Token}
		}
		json.NewEncoder(w).Encode(s)
	})
	routes.HandleFunc("PUT /value", r.put)
	return routes
}

// put accepts a write if this replica leads, and redirects to the leader otherwise.
func (r *replica) put(w http.ResponseWriter, request *http.Request) {
	t := r.term.Load()
	if t == nil || t.Err() != nil {
		l := r.leader.Load()
		if l == nil || l.Vacant() || string(l.Value) == r.url {
			w.Header().Set("Retry-After", "1")
			http.Error(w, "there is no leader", http.StatusServiceUnavailable)
			return
		}
		http.Redirect(w, request, string(l.Value)+request.URL.RequestURI(), http.StatusTemporaryRedirect)
		return
	}

	// From here on it may be too late, whatever t said. The token guards the write, however long
	// this takes.
	if d, err := time.ParseDuration(request.URL.Query().Get("dawdle")); err == nil {
		fmt.Println("dawdling")
		time.Sleep(d)
	}

	query := url.Values{"token": {strconv.FormatInt(t.Token(), 10)}}
	write, err := http.NewRequest(http.MethodPut, r.store+"?"+query.Encode(), request.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}

	answer, err := http.DefaultClient.Do(write)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	w.WriteHeader(answer.StatusCode)
	io.Copy(w, answer.Body)
}
