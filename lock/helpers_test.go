package lock_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
	"github.com/zkrecipes/zkrecipes/lock"
	"github.com/zkrecipes/zkrecipes/protocol"
)

func TestMain(m *testing.M) { suite.Main(m) }

var tooMuch = lock.WithData(make([]byte, protocol.MaxData))

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
