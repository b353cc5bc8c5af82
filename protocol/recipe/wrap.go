package recipe

import "fmt"

// wrap adds the recipe and the path to err, in the form that all recipes use: "lock: /locks/a: …".
// It returns nil for a nil err, and an error that has both already as it is.
func wrap(recipe, path string, err error) error {
	if err == nil {
		return nil
	}
	if r, ok := err.(*recipeError); ok && r.recipe == recipe && r.path == path {
		return err
	}
	return &recipeError{recipe, path, err}
}

// A recipeError is an error of a recipe at a path.
type recipeError struct {
	recipe, path string
	err          error
}

func (e *recipeError) Error() string {
	if e.path == "" {
		return fmt.Sprintf("%s: %v", e.recipe, e.err)
	}
	return fmt.Sprintf("%s: %s: %v", e.recipe, e.path, e.err)
}

func (e *recipeError) Unwrap() error { return e.err }
