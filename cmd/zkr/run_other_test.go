//go:build !unix

package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestCommandsAreRefused(t *testing.T) {
	r := inProcess(t, "127.0.0.1:1", "", "lock", "/a", "--", "true")
	assert.Equal(t, exitCannotRun, r.status)
	assert.Equal(t, "zkr: commands cannot be run on this system: zkr could not end them when the lock is lost\n", r.stderr)
}
