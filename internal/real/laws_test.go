package real_test

import (
	"flag"
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite/laws"
	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

var lawCells = flag.Int("laws.cells", 10, "how many verbs play each law, and how many cells of it")

// The laws hold on a real server, too. -laws.seed chooses other verbs.
func TestLawsOnRealServers(t *testing.T) {
	player := laws.Real(ensemble.Real(t).ConnectString(), *lawCells)
	for name, law := range map[string]func(*testing.T, *laws.Player){
		"refused": laws.Refused, "cut": laws.Cut, "taken": laws.Taken, "killed": laws.Killed, "together": laws.Together,
	} {
		t.Run(name, func(t *testing.T) { law(t, player) })
	}
}
