package main

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/zkrecipes/zkrecipes/recipestest/ensemble"
)

func TestMemberOfAnEnsembleMayStopWhileACommandRuns(t *testing.T) {
	cluster := ensemble.Start(t, 3, ensemble.WithConfig("maxSessionTimeout=120000"))
	s := cluster.Server(t)
	path := s.Root(t) + "/lock"
	p := start(t, zkr(t, cluster.ConnectString(), "lock", "--timeout", "2m", path, "--",
		"sh", "-c", `trap 'exit 5' USR1; trap 'exit 7' TERM; echo $$; while :; do sleep 0.05; done`))
	p.pids()

	// The one that zkr is connected to is among them.
	for _, m := range cluster.Members() {
		m.Stop()
		succeed(t, cluster.ConnectString(), "barrier", "set", s.Root(t)) // once the others serve
		m.Start()
		cluster.WaitHealthy()
	}
	p.signal(syscall.SIGUSR1)
	assert.Equal(t, 5, p.status())
	r := runZkr(t, cluster.ConnectString(), "lock", path, "--", "true")
	assert.Zero(t, r.status, r.stderr)
}
