package barrier_test

import (
	"testing"

	"github.com/zkrecipes/zkrecipes/internal/recipetest"
)

func TestBarrierLinksNoTestDependencies(t *testing.T) {
	t.Parallel()
	recipetest.Links(t, "barrier")
}
