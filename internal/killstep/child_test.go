package killstep_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/protocol"
)

// childEnv is the variable that makes the test binary a process to be killed.
const childEnv = "ZKRECIPES_KILLSTEP"

// A task is what such a process is to do.
type task struct {
	Operation string
	Address   string // of its relay
	Root      string
	Hint      string // from the operation's before
}

// A report is a line that it prints: when it is ready to begin, and when the operation is over.
type report struct {
	Session int64
	Node    string // its own, if it has one
	Over    bool
	Error   string
}

// sessionTimeout is so long that a session has nothing to prove while an operation takes place.
const sessionTimeout = time.Minute

func TestMain(m *testing.M) {
	if text, ok := os.LookupEnv(childEnv); ok {
		if err := beChild(text); err != nil {
			tell(report{Over: true, Error: err.Error()})
		}
		select {} // until it is killed
	}
	suite.Main(m)
}

// beChild prepares an operation, waits for a line of its parent, and carries the operation out.
func beChild(text string) error {
	lines := make(chan string)
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
		os.Exit(1) // the parent is gone
	}()

	var k task
	if err := json.Unmarshal([]byte(text), &k); err != nil {
		return err
	}
	ctx := context.Background()
	c, err := protocol.Connect(ctx, k.Address, protocol.WithSessionTimeout(sessionTimeout))
	if err != nil {
		return err
	}
	session, err := c.Session(ctx)
	if err != nil {
		return err
	}

	p := &process{Client: c, path: k.Root + "/x", hint: k.Hint}
	do, err := find(k.Operation).child(ctx, p)
	if err != nil {
		return fmt.Errorf("prepare: %w", err)
	}
	tell(report{Session: session.ID(), Node: p.node})
	<-lines
	if err := do(ctx); err != nil {
		return err
	}
	tell(report{Over: true})
	return nil
}

func tell(r report) {
	json.NewEncoder(os.Stdout).Encode(r)
}
