"""The paper's theory as a laboratory: two Gaussians, noisy labels, softmax regression, every claim measured."""
