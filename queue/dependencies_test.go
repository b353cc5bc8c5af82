package queue_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/suite"
)

func TestQueueLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	suite.Links(t, "queue")
}
