package main

import "time"

// workerEnv is the environment variable that has a worker's workerConfig. It makes this binary a
// worker.
const workerEnv = "ZKRECIPES_NEMESIS_WORKER"

type workerConfig struct {
	Recipe  string
	Client  int // 0 to Clients-1
	Clients int // of the recipe
	Life    int
	Connect string // the connect string
	Path    string // of the recipe
	Store   string // the socket of the fenced store
	Timeout time.Duration
	Base    int64 // the time of stamp 0
}

// Commands on a worker's standard input, one per line. The worker ends with its input.
const (
	cmdWork  = "work"  // until the next command
	cmdProve = "prove" // do one operation, which must succeed
	cmdRest  = "rest"  // give back everything held across operations

	// These only change how long it keeps a lock.
	cmdKeep  = "keep"  // as long as it can
	cmdHurry = "hurry" // a moment
	cmdFree  = "free"  // as long as it likes (the default)
)

// A line is a line of output: the current state of an operation, or that cmdProve or cmdRest is
// done.
type line struct {
	Op    *Op    `json:"op,omitempty"`
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
