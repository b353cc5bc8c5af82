package mutant

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestOnlyTheActiveMutantChangesSomething(t *testing.T) {
	type request struct {
		Path    string
		Version int32
	}
	check, failed := &request{"/a", 7}, errors.New("failed")
	fails := func() error { return failed }

	assert.False(t, mutantTrue(1, false))
	assert.True(t, mutantFalse(1, true))
	assert.Equal(t, 3*time.Second, mutantAdd(1, 1, 3*time.Second))
	assert.EqualValues(t, 5, mutantVersion(1, 5))
	assert.Same(t, check, mutantCheck(1, check))
	assert.Equal(t, failed, mutantSkip(1, fails))

	// From here on, mutant 1 is active, and mutant 2 still is not.
	mutantActive = 1
	defer func() { mutantActive = -1 }()
	assert.True(t, mutantTrue(1, false))
	assert.False(t, mutantFalse(1, true))
	assert.EqualValues(t, 255, mutantAdd[uint8](1, -1, 0))
	assert.EqualValues(t, -1, mutantVersion(1, 5))
	assert.Equal(t, &request{"/", -1}, mutantCheck(1, check))
	assert.NoError(t, mutantSkip(1, fails))
	assert.False(t, mutantTrue(2, false))
}
