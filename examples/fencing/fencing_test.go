package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

func TestStoreKeepsOutFormerHoldersAndSecondRuns(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { requireFacts(t, "") })
	t.Run("real", func(t *testing.T) {
		servers := os.Getenv("ZKRECIPES_SERVERS")
		if servers == "" || testing.Short() {
			t.Skip("no real server: `.ci/run real` starts one, or set ZKRECIPES_SERVERS, without -short")
		}
		requireFacts(t, servers)
	})
}

// The outcome of the Multi is unknown if the client learns only from it that its session has ended.
var facts = regexp.MustCompile(`^Two processes and a database, .*

The first process holds the lock, and is paused before it writes\.
The second process holds the lock, and writes 120: done
The first process goes on, and writes 90: refused, a greater token was seen
It writes to ZooKeeper, by Multi: refused, lock: /locks/price: (outcome unknown: )?lost: .*

The first process writes the invoice, and dies: done
The second process runs the job again, with a greater token: refused, the job is done already
Invoices: 1
$`)

func requireFacts(t *testing.T, servers string) {
	var out strings.Builder
	if err := run(t.Context(), &out, servers); err != nil {
		t.Fatal(err)
	}
	if t.Log(out.String()); !facts.MatchString(out.String()) {
		t.Errorf("want %s", facts)
	}
}
