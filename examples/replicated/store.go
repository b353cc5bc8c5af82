package main

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
)

// A store keeps one value, and refuses writes with a smaller token than the largest it has seen.
// Fencing takes no more than that.
type store struct {
	mu    sync.Mutex // protects what follows
	token int64
	value string
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token, err := strconv.ParseInt(r.URL.Query().Get("token"), 10, 64)
	if err != nil {
		http.Error(w, "no token", http.StatusBadRequest)
		return
	}

	value, err := io.ReadAll(r.Body)
	if err != nil {
		return // the writer is gone
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if token < s.token {
		http.Error(w, fmt.Sprintf("token %d is older than %d", token, s.token), http.StatusPreconditionFailed)
		return
	}

	s.token, s.value = token, string(value)
	fmt.Fprintf(w, "stored with token %d\n", token)
}

func (s *store) content() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value
}
