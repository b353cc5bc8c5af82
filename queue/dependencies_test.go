package queue_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
)

func TestQueueLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	recipetest.Links(t, "queue")
}
