// The target whose precompiled GoogleTest headers all tests share needs a source.
int main() {
  return 0;
}
