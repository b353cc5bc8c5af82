package main

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/recipestest"
)

func TestBarrierIsSetWaitedAtAndRemoved(t *testing.T) {
	each(t, func(t *testing.T, s *recipestest.Server) {
		path := s.Root(t) + "/barriers/b"
		assert.Empty(t, succeed(t, s.ConnectString(), "barrier", "wait", path), "it is not set")
		succeed(t, s.ConnectString(), "barrier", "set", path, "--data", "migration")
		succeed(t, s.ConnectString(), "barrier", "set", path)
		r := inProcess(t, s.ConnectString(), "", "barrier", "wait", path, "--wait", "50ms")
		assert.Contains(t, outOfTime, r.status, r.stderr)

		waiter := begin(t, s.ConnectString(), "barrier", "wait", path)
		done := suite.Later(func() string { return succeed(t, s.ConnectString(), "barrier", "wait", path) })
		succeed(t, s.ConnectString(), "barrier", "remove", path)
		assert.Empty(t, suite.Wait(t, done))
		succeed(t, s.ConnectString(), "barrier", "remove", path)
		waiter.stop()
	})
}
